"""Questions about active tracers and function transforms."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _disable_current_modes

_are_functorch_transforms_active = getattr(torch._C, "_are_functorch_transforms_active", lambda: False)


def is_traced() -> bool:
    """Return whether a graph is recorded: by ``torch.compile``, ``torch.export`` or ``torch.jit.trace``."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()


def is_exporting() -> bool:
    """Return whether ``torch.export`` records, with ``strict=False``."""
    # torch.compiler.is_exporting() is missing before PyTorch 2.7, and true under torch.compile before 2.12.
    return torch.compiler.is_compiling() and not torch.compiler.is_dynamo_compiling()


def as_constants(grid: Sequence[int]) -> AbstractContextManager:
    """Context in which an export computes at once and records nothing, if all sizes in ``grid`` are known.

    onnxruntime does not fold all that would be recorded: what follows from a range would be computed in every call.
    """
    is_known = all(isinstance(n, int) for n in grid)
    return _disable_current_modes() if is_exporting() and is_known else nullcontext()


def has_free_size(*sizes: int) -> bool:
    """Return whether ``torch.export`` leaves a size free; a branch on that size would be recorded for the example only."""
    return is_exporting() and any(isinstance(size, torch.SymInt) for size in sizes)


def divide_up(size: int, by: int) -> int:
    """``size / by``, rounded up, also of a free size: the exporter to ONNX rounds ``-(-size // by)`` towards zero."""
    return (size + by - 1) // by


def is_transformed() -> bool:
    """Return whether a transform of ``torch.func`` or forward-mode differentiation is active."""
    return _are_functorch_transforms_active() or forward_ad._current_level >= 0
