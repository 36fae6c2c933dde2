"""Numerical precision inside operators."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def no_autocast(device: torch.device) -> AbstractContextManager:
    """Switches autocast off on ``device``; devices that have none, as the meta device on which MACs are counted, need nothing."""
    if torch.amp.is_autocast_available(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


def widest(*tensors: Tensor) -> list[Tensor]:
    """All of them in the widest of their types, and at least in fp32."""
    dtype = torch.float32
    for tensor in tensors:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return [tensor.to(dtype) for tensor in tensors]


def at_least_float(x: Tensor) -> Tensor:
    """fp16 and bf16 as fp32; the rest as it is."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
