"""Weights of a published network in a backbone of this package: what fits by name and shape, and why the rest does not."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isqrt

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmlisa.checkpoints import adapt_state_dict

from .families import Family, recognise
from .rules import apply_rules

_ABSENT, _SHAPE = "not in the file", "of another shape in the file"


@dataclass(frozen=True)
class Carried:
    """What a backbone takes over from a file.

    Attributes:
        family: what the file is.
        state_dict: entries of the backbone, by its names.
        fresh: entries of the backbone that the file does not give, each with the reason.
        dropped: entries of the file that the backbone has no place for.
        share: of the backbone's parameters, by number.
    """

    family: str
    state_dict: dict[str, Tensor]
    fresh: dict[str, str]
    dropped: tuple[str, ...]
    share: float

    def report(self) -> str:
        """For people: what was carried over, what starts fresh, and why."""
        total = len(self.state_dict) + len(self.fresh)
        lines = [
            f"{self.family}: {len(self.state_dict)} of {total} tensors, {self.share:.1%} of the parameters carried over"
        ]
        for reason in (_ABSENT, _SHAPE):
            lines += _listed(f"start fresh, {reason}", [name for name, why in self.fresh.items() if why == reason])
        return "\n".join([*lines, *_listed("of the file unused", self.dropped)])


def _listed(label: str, names: list[str] | tuple[str, ...]) -> list[str]:
    """Names without their indices, each once."""
    kinds = dict.fromkeys(".".join("*" if part.isdigit() else part for part in name.split(".")) for name in names)
    shown = ", ".join(list(kinds)[:6]) + (", …" if len(kinds) > 6 else "")
    return [f"  {len(names)} {label}: {shown}"] if names else []


def carry_over(backbone: nn.Module, state: Mapping[str, Tensor], family: Family | None = None) -> Carried:
    """Finds what of ``state`` fits ``backbone``; nothing is loaded yet.

    Position tables of another grid are interpolated.

    Args:
        backbone: one that the family's weights are for.
        state: the file's weights, by its own names.
        family: what ``state`` is; recognised by default.

    Raises:
        ValueError: an unknown family, or one that this backbone cannot take.
    """
    family = family or recognise(state)
    kind = type(backbone).__name__
    if kind not in family.rules:
        raise ValueError(f"{family.name} weights have no place in {kind}; they fit {', '.join(family.rules)}")
    renamed, dropped = rename(state, family, kind)
    ours = backbone.state_dict()
    _join_projections(renamed, ours)
    for name in list(renamed):
        if name in ours and renamed[name].shape != ours[name].shape:
            renamed[name] = _fit(name, renamed[name], ours[name].shape)
    renamed = adapt_state_dict(backbone, renamed)
    carried = {n: t.to(ours[n].dtype) for n, t in renamed.items() if n in ours and t.shape == ours[n].shape}
    fresh = {n: _SHAPE if n in renamed else _ABSENT for n in ours if n not in carried}
    parameters = {name: value.numel() for name, value in backbone.named_parameters()}
    share = sum(count for name, count in parameters.items() if name in carried) / sum(parameters.values())
    unused = [name for name in renamed if name not in carried]
    return Carried(family.name, carried, fresh, (*dropped, *unused), share)


def rename(state: Mapping[str, Tensor], family: Family, backbone: str) -> tuple[dict[str, Tensor], list[str]]:
    """Tensors by our names, and the names of those that the rules drop."""
    renamed, dropped = {}, []
    for name, tensor in state.items():
        new = apply_rules(family.rules[backbone], name)
        if new is None:
            dropped.append(name)
        else:
            renamed[new] = tensor
            if new.endswith("running_mean"):  # Paddle's batch norms do not count
                renamed.setdefault(new.replace("running_mean", "num_batches_tracked"), torch.tensor(0))
    return renamed, dropped


def _join_projections(state: dict[str, Tensor], ours: Mapping[str, Tensor]) -> None:
    """[q] and [k | v] -> [q | k | v], where our operator projects at once; one branch of CSwin's positions where it has one."""
    for name in [name for name in state if ".lepe.0." in name]:
        if (single := name.replace(".lepe.0.", ".lepe.")) in ours:
            state[single] = state.pop(name)
    for name in [name for name in state if name.endswith((".attn.q.weight", ".attn.q.bias"))]:
        joint, key_value = name.replace(".q.", ".qkv."), name.replace(".q.", ".kv.")
        if joint in ours and key_value in state:
            state[joint] = torch.cat([state.pop(name), state.pop(key_value)])


def _fit(name: str, tensor: Tensor, shape: torch.Size) -> Tensor:
    """A tensor of the same meaning in our shape, where there is one."""
    if tensor.ndim == 4 and len(shape) == 2 and tensor.shape[2:] == (1, 1):
        return tensor.flatten(1)  # a pointwise convolution is a linear layer here
    if name.endswith("position") and tensor.ndim == len(shape) == 3 and tensor.shape[2] == shape[2]:
        return _resize_positions(tensor, shape[1])
    if name.endswith(("relative_position_bias_table", "rel_pos_h", "rel_pos_w")) and tensor.shape[1] == shape[1]:
        return _resize_offsets(tensor, shape[0], square=name.endswith("table"))
    if name.endswith("attention_biases") and tensor.shape[0] == shape[0]:
        # One per offset (|dy|, |dx|) of the grid.
        return _resize_square(tensor.T, shape[1], align_corners=True).T
    return tensor


def _resize_positions(table: Tensor, count: int) -> Tensor:
    """``[1, N_0, C] -> [1, N, C]``: patches bicubically; a class token stays, is dropped, or loses the distillation token."""
    theirs, ours = (isqrt(table.shape[1]) ** 2, isqrt(count) ** 2)
    prefix, patches = table.split([table.shape[1] - theirs, theirs], dim=1)
    wanted = count - ours
    if prefix.shape[1] < wanted or wanted > 1:
        return table
    patches = _resize_square(patches[0], ours)[None]
    return torch.cat([prefix[:, :wanted], patches], dim=1)


def _resize_offsets(table: Tensor, count: int, square: bool) -> Tensor:
    """Relative positions ``[(2n - 1)²  or 2n - 1, C]`` of a window of another size."""
    if square:
        return _resize_square(table, count)
    return F.interpolate(table.T[None], size=count, mode="linear")[0].T


def _resize_square(table: Tensor, count: int, align_corners: bool = False) -> Tensor:
    """``[n², C] -> [m², C]``, bicubically."""
    side, new = isqrt(len(table)), isqrt(count)
    if side**2 != len(table) or new**2 != count or side == new:
        return table
    table_map = table.T.reshape(1, -1, side, side)
    return F.interpolate(table_map, size=new, mode="bicubic", align_corners=align_corners)[0].flatten(1).T
