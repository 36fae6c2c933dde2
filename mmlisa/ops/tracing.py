"""Whether a tracer or a function transform is active."""

import torch
from torch.autograd import forward_ad

_are_functorch_transforms_active = getattr(torch._C, "_are_functorch_transforms_active", lambda: False)


def is_traced() -> bool:
    """Whether a graph is recorded: by ``torch.compile``, ``torch.export`` or ``torch.jit.trace``."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()


def is_exporting() -> bool:
    """Whether ``torch.export`` records, with ``strict=False``."""
    # torch.compiler.is_exporting() is missing before PyTorch 2.7, and true under torch.compile before 2.12.
    return torch.compiler.is_compiling() and not torch.compiler.is_dynamo_compiling()


def is_transformed() -> bool:
    """Whether a transform of ``torch.func`` or forward-mode differentiation is active."""
    return _are_functorch_transforms_active() or forward_ad._current_level >= 0
