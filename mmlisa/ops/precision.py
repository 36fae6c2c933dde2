"""Numerical precision inside operators."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn


def no_autocast(device: torch.device) -> AbstractContextManager:
    """Return a context that switches autocast off on ``device``."""
    # Only if it is on: exporting graphs with dozens of such regions takes minutes. The meta device has no autocast.
    if device.type != "meta" and torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


def layer_dtype(x: Tensor, module: nn.Module) -> torch.dtype:
    """Return the dtype in which ``module``'s layers take their inputs inside of :func:`no_autocast`.

    Without autocast outside, it is that of ``x``. With autocast, it is that of the module's first parameter at any depth, since
    wrapped layers have no ``weight``; without a parameter, it is fp32.
    """
    if x.device.type == "meta" or not torch.is_autocast_enabled(x.device.type):
        return x.dtype
    return next((p.dtype for p in module.parameters()), torch.float32)


def current_autocast(device: torch.device) -> Callable[[], AbstractContextManager]:
    """Return a function that restores the present autocast state of ``device``, for a backward pass."""
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
    """Convert half precision to fp32; fp32, fp64 and complex numbers stay unchanged."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x  # an export records every conversion


def widest(*tensors: Tensor) -> list[Tensor]:
    """Return all tensors in the widest of their dtypes, fp32 at least."""
    dtype = torch.float32
    for tensor in tensors:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return [tensor.to(dtype) for tensor in tensors]
