"""Learning rates that differ between the layers of a network, adaptive gradient clipping, and LAMB of iViT's recipes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from mmengine.optim import AmpOptimWrapper, DefaultOptimWrapperConstructor, OptimWrapper
from mmengine.runner import autocast
from timm.optim import Lamb
from timm.utils.agc import adaptive_clip_grad
from torch import nn

from mmlisa.errors import UserError
from mmlisa.registry import OPTIM_WRAPPER_CONSTRUCTORS, OPTIM_WRAPPERS, OPTIMIZERS

PREFIX = "backbone."

OPTIMIZERS.register_module(name="Lamb", module=Lamb)


@OPTIM_WRAPPERS.register_module()
class AdaptiveClipOptimWrapper(OptimWrapper):
    """MMEngine's wrapper with timm's adaptive gradient clipping (Brock et al., "NFNets", Eq. 3).

    The gradient of each unit is clipped to a share of the norm of its weights, ``clip_grad=dict(clip_factor=0.01)``.
    """

    def __init__(self, *, clip_grad: dict[str, Any], **options: Any) -> None:
        super().__init__(clip_grad=clip_grad, **options)
        self.clip_func = adaptive_clip_grad


@OPTIM_WRAPPERS.register_module()
class AdaptiveClipAmpOptimWrapper(AdaptiveClipOptimWrapper, AmpOptimWrapper):
    """The same with automatic mixed precision; the gradients are clipped after they are unscaled."""


@OPTIM_WRAPPERS.register_module()
class Bf16OptimWrapper(OptimWrapper):
    """MMEngine's wrapper with autocast in bfloat16, which scales no loss; ``AmpOptimWrapper`` does, on GPUs only."""

    @contextmanager
    def optim_context(self, model: nn.Module) -> Iterator[None]:
        with super().optim_context(model), autocast(dtype=torch.bfloat16):
            yield


@OPTIM_WRAPPERS.register_module()
class AdaptiveClipBf16OptimWrapper(AdaptiveClipOptimWrapper, Bf16OptimWrapper):
    """Both."""


@OPTIM_WRAPPER_CONSTRUCTORS.register_module()
class LayerwiseOptimWrapperConstructor(DefaultOptimWrapperConstructor):
    """MMEngine's rules of weight decay, and learning rates by part of the model and by layer of the backbone.

    MMEngine's ``custom_keys`` can set a rate, too, but exempt the parameters that they name from its other rules: the norms of a
    backbone with a rate of its own would decay.

    ``paramwise_cfg`` takes, beside MMEngine's keys:

    * ``lr_mults``: multipliers of the rate by the prefix of a parameter's name, ``{'backbone': 0.1}``; the longest prefix counts.
      A prefix that no parameter has is a UserError;
    * ``layer_decay``: the rate of a layer over the rate of the next one. The backbone's ``get_layer_depth`` counts the layers;
    * ``layer_groups``: ``'block'`` (default): each block is a layer; ``'convnext'``, for four stages: the first two stages, every
      three blocks of the third and the last stage are a layer each (ConvNeXt's fine-tuning).
    """

    def __init__(self, optim_wrapper_cfg: dict[str, Any], paramwise_cfg: dict[str, Any] | None = None) -> None:
        super().__init__(optim_wrapper_cfg, paramwise_cfg)
        self.lr_mults: dict[str, float] = self.paramwise_cfg.get("lr_mults", {})
        self.layer_decay: float = self.paramwise_cfg.get("layer_decay", 1.0)
        self.layer_groups: str = self.paramwise_cfg.get("layer_groups", "block")

    def add_params(self, params: list[dict], module: nn.Module, prefix: str = "", **options: Any) -> None:
        super().add_params(params, module, prefix=prefix, **options)
        if prefix:  # MMEngine calls this method once per submodule, and for the whole model last
            return
        names = {id(parameter): name for name, parameter in module.named_parameters()}
        unknown = [start for start in self.lr_mults if not any(name.startswith(start) for name in names.values())]
        if unknown:
            parts = sorted({name.split(".")[0] for name in names.values()})
            raise UserError(f"lr_mults names {unknown}; the model has {parts}")
        for group in params:
            name = names[id(group["params"][0])]
            starts = [start for start in self.lr_mults if name.startswith(start)]
            mult = self.lr_mults[max(starts, key=len)] if starts else 1.0
            if self.layer_decay < 1:
                mult *= self.layer_decay ** self._layers_above(name, module.backbone)
            group["lr"] = group.get("lr", self.base_lr) * mult

    def _layers_above(self, name: str, backbone: nn.Module) -> int:
        """Count the layers between a parameter and the head, whose parameters have none above them."""
        depth, count = backbone.get_layer_depth(name, PREFIX)
        if self.layer_groups == "block":
            return count - 1 - depth
        layers = convnext_layers([len(stage) for stage in backbone.layer_names()])
        return layers[count - 1] - layers[depth]  # stages after the last map do not count


def convnext_layers(depths: list[int]) -> list[int]:
    """Return ConvNeXt's layer of each depth that ``get_layer_depth`` counts: the stem, the blocks of four stages, the head."""
    if len(depths) != 4:
        raise UserError(f"layer_groups='convnext' needs a backbone of four stages, but this one has {len(depths)}")
    last = 3 + -(-depths[2] // 3)
    third = [3 + block // 3 for block in range(depths[2])]
    return [0, *[1] * depths[0], *[2] * depths[1], *third, *[last] * depths[3], last + 1]
