"""Checksums of a checkpoint's tensors, written with it and verified when it is read."""

import hashlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

_KEY = "tensor_sha256"
_PARTS = ("state_dict", "ema_state_dict", "optimizer")


def add_checksum(checkpoint: dict[str, Any]) -> None:
    """Write the checksums of weights, averaged weights and optimizer state into ``checkpoint['meta']``."""
    checkpoint.setdefault("meta", {})[_KEY] = {
        part: _checksum(checkpoint[part]) for part in _PARTS if part in checkpoint
    }


def verify_checksum(checkpoint: dict[str, Any]) -> None:
    """Compare a checkpoint with its checksums, if it has any. Parts may have been removed to publish the weights.

    Raises:
        ValueError: the tensors are not those that were saved.
    """
    meta = checkpoint.get("meta")
    expected = meta.get(_KEY) if isinstance(meta, dict) else None
    for part, digest in expected.items() if isinstance(expected, dict) else ():
        if part in checkpoint and digest != _checksum(checkpoint[part]):
            raise ValueError(f"the tensors of '{part}' do not match their checksum: it was changed after it was saved")


def _checksum(part: Any) -> str:
    digest = hashlib.sha256()
    for name, tensor in _tensors(part, "", set()):
        flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)};".encode())
        digest.update(memoryview(flat.numpy()))
    return digest.hexdigest()


def _tensors(value: Any, name: str, seen: set[int]) -> Iterator[tuple[str, Tensor]]:
    """Yield every plain tensor once, with its path."""
    if id(value) in seen:
        return
    if type(value) in (Tensor, nn.Parameter):  # a sharded one would need the other processes
        seen.add(id(value))
        yield name, value
    elif isinstance(value, dict | list | tuple):
        seen.add(id(value))
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from _tensors(item, f"{name}.{key}", seen)
