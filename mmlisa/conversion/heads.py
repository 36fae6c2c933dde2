"""Conversion of the head of a published classifier."""

from collections.abc import Mapping

import torch
from torch import Tensor

from .rules import HEAD, apply_rules

_LEVIT = ("head", "head_dist")


def head_weights(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the head's weights under the names of mmpretrain's ``LinearClsHead`` and ``mmlisa.MlpClsHead``: ``head.*``.

    LeViT averages the scores of two heads, each a batch norm and a linear layer. They are merged into one linear layer.
    """
    levit = [head for head in _LEVIT if f"{head}.linear.weight" in state and f"{head}.bn.running_var" in state]
    if levit:
        layers = [_fold({n.removeprefix(f"{head}."): t for n, t in state.items()}) for head in levit]
        weight, bias = (torch.stack(tensors).mean(0) for tensors in zip(*layers, strict=True))
        return {"head.fc.weight": weight, "head.fc.bias": bias}
    names = {name: apply_rules(HEAD, name) for name in state if name.startswith("head.")}
    return {new: state[name] for name, new in names.items() if isinstance(new, str)}


def _fold(head: Mapping[str, Tensor], eps: float = 1e-5) -> tuple[Tensor, Tensor]:
    """``linear(bn(x))`` of an evaluated network as one linear layer: its weight and bias."""
    scale = head["bn.weight"] / (head["bn.running_var"] + eps).sqrt()
    shift = head["bn.bias"] - head["bn.running_mean"] * scale
    return head["linear.weight"] * scale, head["linear.bias"] + head["linear.weight"] @ shift
