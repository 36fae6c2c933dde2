"""Matching of published weights with a backbone by name and shape, with the reasons for the rest."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from mmlisa.models import backbones
from mmlisa.models.layers import ResizeOnLoad

from .families import Family, recognise
from .rules import apply_rules

NO_COUNTERPART = "no counterpart in the file"
_SHOWN = 40  # names in a line of a report
VALUE_ONLY = "except for their value, because query and key differ from the host's"


@dataclass(frozen=True)
class Carried:
    """Weights of a file that match a backbone.

    Attributes:
        family: name of the file's family.
        state_dict: matching weights under the backbone's names.
        fresh: entries of the backbone that the file lacks or has only in part, each with the reason.
        dropped: entries of the file that the rules drop.
        unused: entries of the file without a counterpart: their name under our rules, and their name in the file.
        resized: entries that were interpolated from another grid.
        share: share of the backbone's parameters that the file fills.
    """

    family: str
    state_dict: dict[str, Tensor]
    fresh: dict[str, str]
    dropped: tuple[str, ...]
    unused: dict[str, str]
    resized: tuple[str, ...]
    share: float

    def report(self) -> str:
        """Return a summary as text: what was carried over, what starts fresh, and why."""
        total = len(self.state_dict.keys() | self.fresh.keys())
        lines = [
            f"{self.family}: {len(self.state_dict)} of {total} tensors, {self.share:.1%} of the parameters carried over"
        ]
        for reason in (NO_COUNTERPART, VALUE_ONLY):
            lines += _listed(f"start fresh, {reason}", [name for name, why in self.fresh.items() if why == reason])
        shapes = {name: why for name, why in self.fresh.items() if why not in (NO_COUNTERPART, VALUE_ONLY)}
        # The report shows one entry per layer, and the first block for all blocks of a stage.
        layers = {re.sub(r"blocks\.\d+", "blocks.*", name.rpartition(".")[0] or name): why
                  for name, why in reversed(shapes.items())}  # fmt: skip
        lines += [f"  {len(shapes)} start fresh, of another shape:"] if shapes else []
        lines += [f"    {layer}: {why}" for layer, why in reversed(layers.items())]
        return "\n".join([*lines, *_listed("of the file unused", (*self.dropped, *self.unused.values()))])

    def check_blocks(self, source: str, backbone: str) -> None:
        """Check that the file's network has the same depth.

        Raises:
            ValueError: the file lacks a block of the backbone, or the reverse.
        """
        filled = {block_of(name) for name in self.state_dict}
        lost = {block: name for name in self.fresh if (block := block_of(name)) not in filled}
        extra = {block: name for new, name in self.unused.items() if (block := block_of(new)) not in filled}
        lost.pop(None, None), extra.pop(None, None)
        if lost or extra:
            raise ValueError(
                f"source={source!r} holds {self.family} weights of another size than {backbone}: {len(lost)} of its blocks "
                f"are not in the file, and {len(extra)} blocks of the file have no place"
                + "".join(f"; for instance {next(iter(names.values()))}" for names in (lost, extra) if names)
            )


def block_of(name: str) -> str | None:
    """Return the block that an entry of a backbone belongs to; None outside of blocks."""
    found = re.match(r"stages\.\d+\.blocks\.\d+", name)
    return found[0] if found else None


def _listed(label: str, names: Sequence[str]) -> list[str]:
    """Return a line with the names, each once and with its indices as ``*``."""
    kinds = dict.fromkeys(".".join("*" if part.isdigit() else part for part in name.split(".")) for name in names)
    shown = ", ".join(list(kinds)[:_SHOWN]) + (f" and {len(kinds) - _SHOWN} more" if len(kinds) > _SHOWN else "")
    return [f"  {len(names)} {label}: {shown}"] if names else []


def different_shapes(ours: Tensor, theirs: Tensor) -> str:
    """Describe the difference of two shapes."""
    shown = ("x".join(map(str, tensor.shape)) or "a number" for tensor in (ours, theirs))
    return "{} here, {} in the file".format(*shown)


def carry_over(backbone: nn.Module, state: Mapping[str, Tensor], family: Family | None = None) -> Carried:
    """Find the entries of ``state`` that match ``backbone``, without loading them.

    Position tables of another grid are interpolated.

    Args:
        backbone: a backbone that the family has rules for.
        state: the file's weights under their original names.
        family: family of ``state``; recognised by default.

    Raises:
        ValueError: an unknown family, or a family without rules for this backbone.
    """
    family = family or recognise(state)
    kind = type(backbone).__name__
    if kind not in family.rules:
        raise ValueError(f"{family.name} weights have no place in {kind}; they fit {', '.join(family.rules)}")
    renamed, dropped, origins = rename(state, family, kind)
    ours = backbone.state_dict()
    partial = _join_projections(renamed, ours)
    sizes = {name: tensor.numel() for name, tensor in renamed.items()}
    for name in list(renamed):
        if name in ours and renamed[name].shape[2:] == (1, 1) and ours[name].ndim == 2:
            renamed[name] = renamed[name].flatten(1)  # a pointwise convolution is a linear layer here
    for module_name, module in backbone.named_modules():
        for key in module.on_grid if isinstance(module, ResizeOnLoad) else ():
            if (name := f"{module_name}.{key}" if module_name else key) in renamed:
                # Also of an equal shape: 24x24 and 18x32 have as many positions. Published networks have square grids.
                renamed[name] = module.fit(key, renamed[name])
    carried = {name: renamed[name] for name in ours if name in renamed and renamed[name].shape == ours[name].shape}
    for name, tensor in carried.items():  # averaged weights may hold counters as floating point numbers
        carried[name] = tensor if ours[name].is_floating_point() else tensor.to(ours[name].dtype)
    fresh = partial | {
        name: different_shapes(tensor, renamed[name]) if name in renamed else NO_COUNTERPART
        for name, tensor in ours.items()
        if name not in carried and name not in partial
    }
    parameters = {name: value.numel() for name, value in backbone.named_parameters()}
    counts = {name: count / (3 if name in partial else 1) for name, count in parameters.items() if name in carried}
    return Carried(
        family.name,
        carried,
        fresh,
        tuple(dropped),
        unused={name: origins[name] for name in renamed if name not in ours and name in origins},
        resized=tuple(name for name in carried if carried[name].numel() != sizes.get(name, -1)),
        share=sum(counts.values()) / sum(parameters.values()),
    )


def closest_arch(
    kind: str, state: Mapping[str, Tensor], family: Family, options: Mapping[str, Any] | None = None
) -> tuple[str, Carried]:
    """Return the arch of the backbone ``kind`` that ``state`` fills most, and the matching weights.

    Among equal archs, the one with the fewest interpolated and then the fewest unused entries is returned. ``options`` are
    those of the backbone.
    """
    options, shapes = options or {}, {name: tensor.to("meta") for name, tensor in state.items()}
    archs = list(getattr(backbones, kind).arch_settings)
    found = [carry_over(_on_meta(kind, arch, **options), shapes, family) for arch in archs]
    order = [(round(one.share, 6), -len(one.resized), -len(one.unused)) for one in found]
    best = order.index(max(order))
    # A backbone with values is needed only for projections joined from the file's and initial values.
    joined = VALUE_ONLY in found[best].fresh.values()
    backbone = getattr(backbones, kind)(archs[best], **options) if joined else _on_meta(kind, archs[best], **options)
    return archs[best], carry_over(backbone, state, family)


@cache
def _on_meta(kind: str, arch: str, **options: Any) -> nn.Module:
    with torch.device("meta"):
        return getattr(backbones, kind)(arch, **options)


def rename(
    state: Mapping[str, Tensor], family: Family, backbone: str
) -> tuple[dict[str, Tensor], list[str], dict[str, str]]:
    """Return the tensors under our names, the names that the rules drop, and the name in the file for each of ours."""
    renamed, dropped, origins = {}, [], {}
    for name, tensor in state.items():
        names = apply_rules(family.rules[backbone], name)
        names = names if isinstance(names, tuple) else (names,)
        if not any(names):
            dropped.append(name)
        for new, part in zip(names, tensor.chunk(len(names)) if len(names) > 1 else (tensor,), strict=True):
            if new is not None:
                renamed[new], origins[new] = part, name
                if new.endswith("running_mean"):  # Paddle's batch norms do not count their batches
                    renamed.setdefault(new.replace("running_mean", "num_batches_tracked"), torch.tensor(0))
    return renamed, dropped, origins


def _join_projections(state: dict[str, Tensor], ours: Mapping[str, Tensor]) -> dict[str, str]:
    """Join [q] and [k | v] to [q | k | v] if our operator has one projection, and rename CSwin's single position branch.

    Returns:
        Joint projections of which the file has at most the value, each with the reason.
    """
    partial = {}
    for query_gate in [name for name in state if ".attn.qg." in name]:
        parts = state.pop(query_gate).chunk(2), state.pop(query_gate.replace(".qg.", ".kv."))
        state[query_gate.replace(".qg.", ".qkvg.")] = torch.cat([parts[0][0], parts[1], parts[0][1]])
    for name in [name for name in state if ".lepe.0." in name]:
        if (single := name.replace(".lepe.0.", ".lepe.")) in ours:
            state[single] = state.pop(name)
    for joint in [name for name in ours if name.endswith((".attn.qkv.weight", ".attn.qkv.bias"))]:
        query, key_value, value = (joint.replace(".qkv.", f".{part}.") for part in ("q", "kv", "v"))
        if query in state and key_value in state:
            state[joint] = torch.cat([state.pop(query), state.pop(key_value)])
        elif value in state:
            *own, third = ours[joint].chunk(3)
            if third.shape == state[value].shape:
                state[joint], partial[joint] = torch.cat([*own, state.pop(value).to(third)]), VALUE_ONLY
            else:
                partial[joint] = f"its value {different_shapes(third, state.pop(value))}"
    return partial
