"""Whether a hook listens to a module."""

from torch import nn
from torch.nn.modules import module as _module

_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def has_hooks(module: nn.Module) -> bool:
    """Whether calls of ``module`` run a hook, or a ``forward`` that replaces its class's, as some libraries wrap a module."""
    if any(getattr(_module, f"_global{kind}") for kind in _HOOKS):
        return True
    return "forward" in vars(module) or any(getattr(module, kind) for kind in _HOOKS)
