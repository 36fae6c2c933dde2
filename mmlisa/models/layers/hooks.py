"""Checks for libraries that change how a module is called."""

from torch import nn
from torch.nn.modules import module as _module

_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def has_hooks(module: nn.Module) -> bool:
    """Return whether calls of ``module`` run a hook, or a ``forward`` of the instance, as some libraries set it."""
    if any(getattr(_module, f"_global{kind}") for kind in _HOOKS):
        return True
    return "forward" in vars(module) or any(getattr(module, kind) for kind in _HOOKS)
