"""Any convolutional or hierarchical network of timm as a backbone of OpenMMLab's heads."""

from collections.abc import Sequence
from typing import Any

import timm
from mmengine.model import BaseModule
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from mmlisa.registry import MODELS


@MODELS.register_module()
class TimmBackbone(BaseModule):
    """A network of timm that returns a map per stage. mmpretrain's ``TIMMBackbone`` lacks ``frozen_stages`` and ``norm_eval``.

    Args:
        model_name, pretrained, options: of ``timm.create_model``.
        out_indices: maps to return; None for all.
        frozen_stages: -1 trains everything, 0 freezes what precedes the first map's stage, n > 0 also the stages of n maps.
        norm_eval: batch norms keep their running statistics during training.

    Raises:
        ValueError: ``frozen_stages`` out of range.
    """

    def __init__(
        self,
        model_name: str,
        *,
        out_indices: Sequence[int] | None = None,
        frozen_stages: int = -1,
        norm_eval: bool = False,
        pretrained: bool = False,
        init_cfg: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(init_cfg)
        if out_indices is not None:
            options["out_indices"] = tuple(out_indices)
        self.network = timm.create_model(model_name, features_only=True, pretrained=pretrained, **options)
        info = self.network.feature_info
        self.out_indices = tuple(info.out_indices)
        self.feature_channels, self.feature_strides = tuple(info.channels()), tuple(info.reduction())
        if not -1 <= frozen_stages <= len(info.info):
            raise ValueError(
                f"frozen_stages={frozen_stages!r}; it must lie between -1 (none) and {len(info.info)} (all)"
            )
        self.norm_eval = norm_eval
        self._frozen = self._modules_until(frozen_stages) if frozen_stages >= 0 else []
        for module in self._frozen:
            for parameter in module.parameters(recurse=False):
                parameter.requires_grad_(False)

    def _modules_until(self, stages: int) -> list[nn.Module]:
        ends = [one["module"].replace(".", "_") for one in self.network.feature_info.info]
        modules = [(name.replace(".", "_"), module) for name, module in self.network.named_modules()]
        inside = [i for i, (name, _) in enumerate(modules) if f"{name}_".startswith(f"{ends[max(stages, 1) - 1]}_")]
        return [module for _, module in modules[: inside[-1] + 1 if stages else inside[0]]]

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        """``[B, 3, H, W]`` -> one ``[B, C_i, H_i, W_i]`` per output index."""
        return tuple(self.network(image))

    def train(self, mode: bool = True) -> "TimmBackbone":
        """Set the training mode; frozen stages, and batch norms with ``norm_eval``, stay in evaluation."""
        super().train(mode)
        for module in self.network.modules():
            if module in self._frozen or (self.norm_eval and isinstance(module, _BatchNorm)):
                module.training = False
        return self
