"""Conversion of complete PicoDet detectors from PaddleDetection to MMDetection."""

from collections.abc import Mapping

import torch
from torch import Tensor

from .families import recognise
from .rules import PADDLE_HEAD, PADDLE_PAN, apply_rules

_REG_MAX = 7  # of all published PicoDets
# Entries found only in other heads: towers for the boxes, or PicoHeadV2's attention and alignment (release 2022.03).
_OTHER_HEADS = ("head.conv_feat.reg_conv_", "head.head_reg", "head.conv_feat.se.", "head.cls_align.")


def is_picodet(state: Mapping[str, Tensor]) -> bool:
    """Whether ``state`` has the names of PaddleDetection's PicoDet."""
    return "head.head_cls0.weight" in state and "neck.conv_t.convs.0.conv.weight" in state


def convert_picodet(state: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Convert PaddleDetection's PicoDet with LCNet or ESNet and CSP-PAN or LC-PAN to a detector of this package.

    Args:
        state: the file's weights under their original names.

    Returns:
        The weights ``backbone.*``, ``neck.*`` and ``bbox_head.*``, and the dropped names. Dropped are weights that are
        never applied, and the complete head if it is not a :class:`mmlisa.models.dense_heads.PicoHead`.

    Raises:
        ValueError: ``state`` is not such a detector.
    """
    if not is_picodet(state):
        raise ValueError(f"the file is not a PicoDet of PaddleDetection: it holds {', '.join(sorted(state)[:5])}, …")
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
