"""Whole PicoDet detectors in PaddleDetection's naming, for MMDetection's."""

from collections.abc import Mapping

import torch
from torch import Tensor

from .families import recognise
from .rules import PADDLE_HEAD, PADDLE_PAN, apply_rules

_REG_MAX = 7  # of all published PicoDets
# What only other heads have: towers for the boxes, or PicoHeadV2's attention and alignment (release 2022.03).
_OTHER_HEADS = ("head.conv_feat.reg_conv_", "head.head_reg", "head.conv_feat.se.", "head.cls_align.")


def is_picodet(state: Mapping[str, Tensor]) -> bool:
    """Whether ``state`` has the names of PaddleDetection's PicoDet."""
    return "head.head_cls0.weight" in state and "neck.conv_t.convs.0.conv.weight" in state


def convert_picodet(state: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """PicoDet of PaddleDetection with LCNet or ESNet, and CSP-PAN or LC-PAN -> a detector with the same parts of this package.

    Args:
        state: the file's weights, by its own names.

    Returns:
        ``backbone.*``, ``neck.*`` and ``bbox_head.*``; and the names that have no place in such a detector: weights that are
        never applied, or the whole head where it is not :class:`mmlisa.models.dense_heads.PicoHead`.

    Raises:
        ValueError: not such a detector.
    """
    if not is_picodet(state):
        raise ValueError(f"no PicoDet of PaddleDetection's: the file holds {', '.join(sorted(state)[:5])}, …")
    backbone = {name.removeprefix("backbone."): t for name, t in state.items() if name.startswith("backbone.")}
    rules = {"backbone": next(iter(recognise(backbone).rules.values())), "neck": PADDLE_PAN}
    if not any(name.startswith(_OTHER_HEADS) for name in state):
        rules["head"] = PADDLE_HEAD
    converted, dropped = {}, []
    for name, tensor in state.items():
        part, _, rest = name.partition(".")
        new = apply_rules(rules[part], rest if part == "backbone" else name) if part in rules else None
        if new is None:
            dropped.append(name)
        else:
            converted[f"backbone.{new}" if part == "backbone" else new] = tensor
    if "head" in rules:  # some releases compute the distances instead of saving them
        converted.setdefault("bbox_head.integral.project", torch.arange(_REG_MAX + 1.0))
    # Paddle's batch norms do not count their batches.
    counters = [n.replace("running_mean", "num_batches_tracked") for n in converted if n.endswith("running_mean")]
    return converted | {name: torch.tensor(0) for name in counters}, tuple(dropped)
