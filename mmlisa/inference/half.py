"""Predictions in half precision."""

from typing import Any

import torch
from mmengine.model import BaseModel
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from mmlisa.errors import UserError
from mmlisa.inference.cpu import with_class
from mmlisa.ops import at_least_fp32

# The parts of models of mmdet, mmseg and mmpretrain whose results are maps, logits or vectors. A detector's heads stay in fp32:
# bfloat16 rounds a coordinate beyond 512 pixels by up to 2, and mmcv's compiled operators on CPUs do not take it.
PARTS = ("backbone", "neck", "decode_head", "head")


class _InHalf(nn.Module):
    """The class put before a module's own: the forward pass runs under autocast and returns fp32."""

    _half: tuple[str, torch.dtype]

    def forward(self, *args: Any, **options: Any) -> Any:
        with torch.autocast(*self._half):
            y = super().forward(*args, **options)
        return tree_map_only(Tensor, at_least_fp32, y)


def use_half(model: nn.Module, device: str, dtype: str | None = None) -> None:
    """Replace the parts of mmdet's, mmseg's or mmpretrain's models within ``model`` by such that compute in half precision.

    Args:
        model: such a model, or one around it.
        device: type of the device on which the model runs.
        dtype: ``'bfloat16'`` or ``'float16'``; None for bfloat16 on a CPU and float16 elsewhere, as MMEngine chooses.

    Raises:
        UserError: another ``dtype``, or a model without such parts, which would predict in fp32.
    """
    dtype = dtype or ("bfloat16" if device == "cpu" else "float16")
    if dtype not in ("bfloat16", "float16"):
        raise UserError(f"dtype is '{dtype}'; use 'bfloat16' or 'float16'")
    models = [module for module in model.modules() if isinstance(module, BaseModel)]
    parts = [(each, name) for each in models for name in PARTS if isinstance(getattr(each, name, None), nn.Module)]
    if not parts:
        raise UserError(f"dtype is '{dtype}', but {type(model).__name__} has none of {', '.join(PARTS)}; leave it out")
    for parent, name in parts:
        part = getattr(parent, name)
        kind = type(part).__name__, (_InHalf, type(part)), {"_half": (device, getattr(torch, dtype))}
        parent.add_module(name, with_class(part, type(*kind)))
