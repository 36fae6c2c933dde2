"""Numerical precision inside operators."""

from contextlib import AbstractContextManager, nullcontext

import torch


def no_autocast(device: torch.device) -> AbstractContextManager:
    """Switches autocast off on ``device``; devices that have none, as the meta device on which MACs are counted, need nothing."""
    if torch.amp.is_autocast_available(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()
