"""Optimizers of timm for MMEngine, and rates that differ between the layers of a network."""

import re
from typing import Any

from mmengine.optim import DefaultOptimWrapperConstructor
from timm.optim import Lamb
from torch import nn

from mmlisa.registry import OPTIM_WRAPPER_CONSTRUCTORS, OPTIMIZERS

# LAMB of MetaFormer's and iViT's ImageNet recipes: ``optimizer=dict(type='mmlisa.Lamb', lr=…, weight_decay=…)``.
OPTIMIZERS.register_module(name="Lamb", module=Lamb)

_OUTER = re.compile(r"backbone\.(?:stem|embeds\.0|downsamples\.0|position)")
_INNER = re.compile(r"backbone\.(stages|embeds|downsamples)\.(\d+)\.(?:blocks\.)?(\w+)")


@OPTIM_WRAPPER_CONSTRUCTORS.register_module()
class LayerwiseOptimWrapperConstructor(DefaultOptimWrapperConstructor):
    """MMEngine's rules of weight decay, and learning rates by layer beside them.

    MMEngine's ``custom_keys`` can set a rate, too, but what they name is exempt from its other rules: the norms of a backbone
    with a rate of its own would decay.

    ``paramwise_cfg`` takes, beside MMEngine's keys:

    * ``lr_mults``: rates of parts of the model, ``{'backbone': 0.1}`` (the longest prefix of a parameter's name counts);
    * ``layer_decay``: rate of a layer over that of the next, in a backbone of four stages. As in ConvNeXt's fine-tuning, the
      stem, each of the first two stages, every three blocks of the third, and the last stage are a layer each.

    Raises:
        ValueError: a part that the model does not have, or a ``layer_decay`` outside (0, 1].
    """

    def __init__(self, optim_wrapper_cfg: dict[str, Any], paramwise_cfg: dict[str, Any] | None = None) -> None:
        super().__init__(optim_wrapper_cfg, paramwise_cfg)
        self.lr_mults: dict[str, float] = self.paramwise_cfg.get("lr_mults", {})
        self.layer_decay: float = self.paramwise_cfg.get("layer_decay", 1.0)
        if not 0 < self.layer_decay <= 1:
            raise ValueError(f"layer_decay={self.layer_decay}; it must be greater than 0 and at most 1")

    def add_params(self, params: list[dict], module: nn.Module, prefix: str = "", **options: Any) -> None:
        super().add_params(params, module, prefix=prefix, **options)
        if prefix:  # called once per submodule, and at last for the whole model
            return
        names = {id(parameter): name for name, parameter in module.named_parameters()}
        unknown = [part for part in self.lr_mults if not any(name.startswith(part) for name in names.values())]
        if unknown:
            raise ValueError(
                f"lr_mults names {unknown}; the model has {sorted({n.split('.')[0] for n in names.values()})}"
            )
        third = {
            int(m[3])
            for m in map(_INNER.match, names.values())
            if m and m[1] == "stages" and m[2] == "2" and m[3].isdigit()
        }
        for group in params:
            name = names[id(group["params"][0])]
            parts = [part for part in self.lr_mults if name.startswith(part)]
            mult = self.lr_mults[max(parts, key=len)] if parts else 1.0
            mult *= self.layer_decay ** layers_above(name, len(third))
            group["lr"] = group.get("lr", self.base_lr) * mult


def layers_above(name: str, third_depth: int) -> int:
    """Layers between a parameter and the head, whose own are 0, for a third stage of ``third_depth`` blocks."""
    last = 3 + -(-third_depth // 3)
    if _OUTER.match(name):
        return last + 1
    match = _INNER.match(name)
    if match is None or match[3].startswith("norm"):
        return 0
    kind, stage, part = match[1], int(match[2]), match[3]
    is_block = kind == "stages" and part.isdigit()
    # A downsampling belongs to the layer of its stage's first block.
    layer = last if stage == 3 else stage + 1 + (int(part) // 3 if stage == 2 and is_block else 0)
    return last + 1 - layer
