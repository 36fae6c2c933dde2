"""Numerical precision inside operators."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def no_autocast(device: torch.device) -> AbstractContextManager:
    """Switches autocast off on ``device``, where it is on."""
    # Only there: an export takes minutes over graphs with dozens of such regions. Tensors without data know no autocast.
    if device.type != "meta" and torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


def current_autocast(device: torch.device) -> Callable[[], AbstractContextManager]:
    """What makes a context with autocast on ``device`` as it is now, for a backward pass."""
    kind = device.type
    if not torch.amp.is_autocast_available(kind):
        return nullcontext
    enabled, dtype = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)

    def autocast() -> AbstractContextManager:
        if torch.is_autocast_enabled(kind) == enabled and (not enabled or torch.get_autocast_dtype(kind) == dtype):
            return nullcontext()
        return torch.autocast(kind, dtype, enabled)

    return autocast


def at_least_fp32(x: Tensor) -> Tensor:
    """Half precision as fp32; fp32, fp64 and complex numbers unchanged."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def widest(*tensors: Tensor) -> list[Tensor]:
    """Return all tensors in the widest of their dtypes, fp32 at least."""
    dtype = torch.float32
    for tensor in tensors:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return [tensor.to(dtype) for tensor in tensors]
