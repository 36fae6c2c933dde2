"""Any network of timm that returns maps, as a backbone of OpenMMLab's heads."""

from functools import cached_property, partial
from typing import Any

import timm
import torch
import torch.nn.functional as F
from mmengine.model import BaseModule
from timm.layers import PatchEmbed
from timm.models import group_parameters
from timm.models._features import FeatureGetterNet
from torch import Tensor, nn

from mmlisa.checkpoints import read_checkpoint, state_dict_of
from mmlisa.errors import UserError
from mmlisa.models.backbones.base import keep_frozen
from mmlisa.models.init_cfg import SafeInit
from mmlisa.registry import MODELS


@MODELS.register_module()
class TimmBackbone(SafeInit, BaseModule):
    """A network of timm that returns maps.

    mmpretrain's ``TIMMBackbone`` lacks ``frozen_stages`` and ``norm_eval``, and returns Swin's maps as ``[B, H, W, C]``.

    Args:
        model_name, options: of ``timm.create_model``, such as ``out_indices`` and ``drop_path_rate``.
        pretrained: True for the weights that timm downloads, or a file of the network's weights, which is read without running
            its code and, in either direction, compared with the network by timm; the classifier may have any number of classes.
        norm: put the network's last norm on the maps, as in the features of DINOv2; for networks with ``forward_intermediates``.
        frozen_stages: -1 trains everything, 0 freezes what precedes the first map's stage, n > 0 also the stages of n maps
            (n blocks of a plain ViT).
        norm_eval: batch norms keep their running statistics during training.

    Images are padded with zeros to whole patches.

    Raises:
        UserError: an unknown network, an option that it lacks, a file that does not fill it, or, in ``forward``, a size that it
            does not take.
    """

    def __init__(
        self,
        model_name: str,
        *,
        pretrained: bool | str = False,
        norm: bool = False,
        frozen_stages: int = -1,
        norm_eval: bool = False,
        init_cfg: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(init_cfg)
        self.model_name = model_name
        # Of the network before timm takes the maps out of it.
        self.whole_options = {key: value for key, value in options.items() if key != "out_indices"}
        if norm:
            options["feature_cls"] = partial(FeatureGetterNet, norm=True)
        if isinstance(pretrained, str):
            weights = self._read(pretrained)
            options["pretrained_cfg_overlay"] = dict(state_dict=weights)
        self.network = timm.create_model(model_name, pretrained=bool(pretrained), features_only=True, **options)
        info = self.network.feature_info
        self.out_indices = tuple(info.out_indices)
        self.feature_channels, self.feature_strides = tuple(info.channels()), tuple(info.reduction())
        last = max(self.out_indices) + 1
        if not -1 <= frozen_stages <= last:
            raise UserError(f"frozen_stages={frozen_stages!r}; it must lie between -1 (none) and {last} (all)")
        self.norm_eval, self._frozen = norm_eval, []
        if frozen_stages >= 0:
            before = self._modules_before(frozen_stages)
            self._frozen = [module for module in before if set(module.modules()) <= set(before)]
            for module in before:  # class tokens and positions belong to the whole network
                for parameter in module.parameters(recurse=False):
                    parameter.requires_grad_(False)
        self.train()

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        """``[B, 3, H, W]`` -> one ``[B, C_i, H_i, W_i]`` per output index."""
        embedding = getattr(getattr(self.network, "model", self.network), "patch_embed", None)
        padded = image
        if isinstance(embedding, PatchEmbed):
            height, width = embedding.patch_size
            padded = F.pad(image, (0, -image.shape[3] % width, 0, -image.shape[2] % height))
        try:
            maps = self.network(padded)
        except AssertionError as error:
            size = "x".join(map(str, image.shape[2:]))
            remedy = "see timm's options dynamic_img_size, img_size and strict_img_size"
            raise UserError(
                f"model_name={self.model_name!r} takes no image of {size}: {error or 'no reason'}; {remedy}"
            ) from error
        if getattr(self.network, "output_fmt", "NCHW") == "NHWC":  # Swin
            maps = [x.permute(0, 3, 1, 2).contiguous() for x in maps]
        return tuple(maps)

    def get_layer_depth(self, param_name: str, prefix: str = "") -> tuple[int, int]:
        """Return timm's layer of a parameter and the number of layers, for learning rates that decay from layer to layer.

        Parameters outside of the backbone, whose names do not begin with ``prefix``, belong to the last layer. A network whose
        layers timm does not number is a UserError.
        """
        if not self._depths:
            raise UserError(f"timm does not number the layers of model_name={self.model_name!r}; leave out layer_decay")
        count = max(self._depths.values()) + 1
        name = param_name.removeprefix(prefix) if param_name.startswith(prefix) else ""
        return self._depths.get(_flat(name), count - 1), count

    @cached_property
    def _depths(self) -> dict[str, int]:
        """The layer of each parameter, by which learning rates decay."""
        with torch.device("meta"):
            whole = timm.create_model(self.model_name, **self.whole_options)
        if not hasattr(whole, "group_matcher"):
            return {}
        groups = group_parameters(whole, whole.group_matcher(coarse=False))
        return {_flat(name): layer for layer, names in groups.items() for name in names}

    def _read(self, path: str) -> dict[str, Tensor]:
        """Return the weights of a file that timm loads strictly into the whole network; into one for maps, it does not."""
        weights = dict(state_dict_of(read_checkpoint(path), path))
        stated = timm.get_pretrained_cfg(self.model_name)
        classifier = weights.get(f"{stated.classifier}.weight")
        saved_classes = 0 if classifier is None else len(classifier)
        reasons = []
        # The second one is for a file of other classes, or without a classifier, under timm's names.
        for classes in (stated.num_classes, saved_classes):
            overlay = dict(state_dict=dict(weights), num_classes=classes, label_offset=0)
            options = dict(self.whole_options, num_classes=classes, pretrained_cfg_overlay=overlay)
            try:
                timm.create_model(self.model_name, pretrained=True, **options)
            except (RuntimeError, KeyError) as error:
                reasons.append(" ".join(str(error).split()))
            else:
                return weights
        raise UserError(f"pretrained={path!r} is not a file of {self.model_name}: {min(reasons, key=len)[:300]}")

    def _modules_before(self, stage: int) -> list[nn.Module]:
        """Return the modules up to the last one of a stage, with 0 up to the first stage, in the order of registration."""
        end = self.network.feature_info.info[max(stage, 1) - 1]["module"].replace(".", "_")
        names = [name.removeprefix("model.").replace(".", "_") for name, _ in self.network.named_modules()]
        last = [i for i, name in enumerate(names) if f"{name}_".startswith(f"{end}_")]
        return list(self.network.modules())[: last[-1] + 1 if stage else last[0]]

    def train(self, mode: bool = True) -> "TimmBackbone":
        super().train(mode)
        keep_frozen(self, self._frozen, self.norm_eval)
        return self


def _flat(name: str) -> str:
    """Return the name of a parameter without the differences that timm's ways to take maps out of a network make."""
    return name.removeprefix("network.").removeprefix("model.").replace(".", "_")
