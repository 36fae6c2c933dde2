"""Whole PicoDet detectors in PaddleDetection's naming, for MMDetection's."""

from collections.abc import Mapping

import torch
from torch import Tensor

from .families import recognise
from .rules import PADDLE_HEAD, PADDLE_PAN, apply_rules

_REG_MAX = 7  # of all published PicoDets


def is_picodet(state: Mapping[str, Tensor]) -> bool:
    """Whether ``state`` has the names of PaddleDetection's PicoDet."""
    return "head.head_cls0.weight" in state and "neck.conv_t.convs.0.conv.weight" in state


def convert_picodet(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """PicoDet of PaddleDetection with LCNet or ESNet, and CSP-PAN or LC-PAN -> a detector with the same parts of this package.

    Args:
        state: the file's weights, by its own names.

    Returns:
        ``backbone.*``, ``neck.*`` and ``bbox_head.*``.

    Raises:
        ValueError: not such a detector.
    """
    if not is_picodet(state):
        raise ValueError(f"no PicoDet of PaddleDetection's: the file holds {', '.join(sorted(state)[:5])}, …")
    backbone = {name.removeprefix("backbone."): t for name, t in state.items() if name.startswith("backbone.")}
    rules = next(iter(recognise(backbone).rules.values()))
    converted = {}
    for name, tensor in backbone.items():
        converted[f"backbone.{apply_rules(rules, name)}"] = tensor
    for name, tensor in state.items():
        part = name.split(".")[0]
        if part != "backbone" and (new := apply_rules(PADDLE_PAN if part == "neck" else PADDLE_HEAD, name)):
            converted[new] = tensor
    # Paddle's batch norms do not count their batches, and some releases compute the head's distances instead of saving them.
    counters = [
        name.replace("running_mean", "num_batches_tracked") for name in converted if name.endswith("running_mean")
    ]
    converted.setdefault("bbox_head.integral.project", torch.arange(_REG_MAX + 1.0))
    return converted | {name: torch.tensor(0) for name in counters}
