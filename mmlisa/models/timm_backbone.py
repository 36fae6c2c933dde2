"""Any network of timm that returns maps, as a backbone of OpenMMLab's heads."""

from typing import Any

import timm
from mmengine.model import BaseModule
from torch import Tensor, nn

from mmlisa.errors import UserError
from mmlisa.models.backbones.base import keep_frozen
from mmlisa.models.init_cfg import SafeInit
from mmlisa.registry import MODELS


@MODELS.register_module()
class TimmBackbone(SafeInit, BaseModule):
    """A network of timm that returns maps.

    mmpretrain's ``TIMMBackbone`` lacks ``frozen_stages`` and ``norm_eval``, and returns Swin's maps as ``[B, H, W, C]``.

    Args:
        model_name, options: of ``timm.create_model``, such as ``pretrained``, ``out_indices`` and ``drop_path_rate``.
        frozen_stages: -1 trains everything, 0 freezes what precedes the first map's stage, n > 0 also the stages of n maps
            (n blocks of a plain ViT).
        norm_eval: batch norms keep their running statistics during training.
    """

    def __init__(
        self,
        model_name: str,
        *,
        frozen_stages: int = -1,
        norm_eval: bool = False,
        init_cfg: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(init_cfg)
        self.network = timm.create_model(model_name, features_only=True, **options)
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
        maps = self.network(image)
        if getattr(self.network, "output_fmt", "NCHW") == "NHWC":  # Swin
            maps = [x.permute(0, 3, 1, 2).contiguous() for x in maps]
        return tuple(maps)

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
