"""Any network of timm that returns maps, as a backbone of OpenMMLab's heads."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import timm
import torch
import torch.nn.functional as F
from mmengine.model import BaseModule
from timm.models import group_parameters
from timm.models._features import FeatureGetterNet
from torch import Tensor, nn

from mmlisa.checkpoints import read_checkpoint, state_dict_of
from mmlisa.errors import UserError
from mmlisa.models.backbones.base import keep_frozen
from mmlisa.models.init_cfg import SafeInit
from mmlisa.registry import MODELS

_SEED = 2_147_483_629  # of initial values that are compared with a file's; a file made with this seed would be refused


@MODELS.register_module()
class TimmBackbone(SafeInit, BaseModule):
    """A network of timm that returns maps.

    mmpretrain's ``TIMMBackbone`` lacks ``frozen_stages`` and ``norm_eval``, and returns Swin's maps as ``[B, H, W, C]``.

    Args:
        model_name, options: of ``timm.create_model``, such as ``out_indices`` and ``drop_path_rate``.
        pretrained: True for the weights that timm downloads, or a file of the weights of the whole network, which is read without
            running its code.
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
        if norm:
            options["feature_cls"] = partial(FeatureGetterNet, norm=True)
        self.model_name = model_name
        self.network = self._create(pretrained, options)
        self.depths = self._depths(options)
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
        bottom, right = (-size % patch for size, patch in zip(image.shape[2:], self._patch(), strict=True))
        try:
            maps = self.network(F.pad(image, (0, right, 0, bottom)))
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
        if not self.depths:
            raise UserError(f"timm does not number the layers of model_name={self.model_name!r}; leave out layer_decay")
        count = max(self.depths.values()) + 1
        name = param_name.removeprefix(prefix) if param_name.startswith(prefix) else ""
        return self.depths.get(_flat(name), count - 1), count

    def _create(self, pretrained: bool | str, options: dict[str, Any]) -> nn.Module:
        create = partial(timm.create_model, self.model_name, features_only=True, **options)
        if isinstance(pretrained, bool):
            return create(pretrained=pretrained)
        weights = dict(state_dict_of(read_checkpoint(pretrained), pretrained))
        with torch.random.fork_rng():
            torch.manual_seed(_SEED)
            initial = create().state_dict()
            torch.manual_seed(_SEED)
            network = create(pretrained=True, pretrained_cfg_overlay=dict(state_dict=weights))
        _check_filled(initial, network.state_dict(), pretrained, self.model_name)
        return network

    def _depths(self, options: Mapping[str, Any]) -> dict[str, int]:
        """Return the layer of each parameter, which the network knows before timm takes the maps out of it."""
        inner = {key: value for key, value in options.items() if key not in ("out_indices", "feature_cls")}
        with torch.device("meta"):
            whole = timm.create_model(self.model_name, **inner)
        if not hasattr(whole, "group_matcher"):
            return {}
        groups = group_parameters(whole, whole.group_matcher(coarse=False))
        return {_flat(name): layer for layer, names in groups.items() for name in names}

    def _patch(self) -> tuple[int, int]:
        """Return the sides of a patch; 1 in a network that takes any image."""
        embedding = getattr(getattr(self.network, "model", self.network), "patch_embed", None)
        return getattr(embedding, "patch_size", None) or (1, 1)

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


def _check_filled(before: Mapping[str, Tensor], after: Mapping[str, Tensor], source: str, name: str) -> None:
    """Raise UserError if a file has left a matrix of a network at its initial values, which timm does not say."""
    kept = [key for key, tensor in before.items() if tensor.ndim > 1 and tensor.equal(after[key])]
    if kept:
        first = ", ".join(kept[:3])
        raise UserError(
            f"pretrained={source!r} does not fill {name}: {len(kept)} matrices keep random values ({first})"
        )
