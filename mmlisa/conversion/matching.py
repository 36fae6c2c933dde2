"""Matching of published weights with a backbone by name and shape, with the reasons for the rest."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mmlisa.checkpoints.loading import adapt_channels
from mmlisa.errors import UserError
from mmlisa.models.backbones.base import Backbone
from mmlisa.models.layers.grids import ResizeOnLoad
from mmlisa.models.published import Network

from .networks import hosts_of
from .renaming import Renamed, rename

NO_COUNTERPART = "no counterpart in the file"
_SHOWN = 40  # names in a line of a report
VALUE_ONLY = "except for their value, because query and key differ from the host's"


@dataclass(frozen=True)
class Match:
    """Weights of a file that match a backbone.

    Attributes:
        network: name of the file's network.
        state: matching weights under the backbone's names.
        fresh: entries of the backbone that the file lacks or has only in part, each with the reason.
        dropped: entries of the file that the rules drop.
        unused: entries of the file without a counterpart: their name under our rules, and their name in the file.
        resized: entries that were interpolated from another grid.
        share: share of the backbone's parameters that the file fills.
    """

    network: str
    state: dict[str, Tensor]
    fresh: dict[str, str]
    dropped: tuple[str, ...]
    unused: dict[str, str]
    resized: tuple[str, ...]
    share: float

    @property
    def reshaped(self) -> dict[str, str]:
        """Entries that the file has in another shape, with both shapes."""
        return {name: why for name, why in self.fresh.items() if why not in (NO_COUNTERPART, VALUE_ONLY)}

    def report(self) -> str:
        """Return a summary as text: what matches, what starts fresh, and why."""
        total = len(self.state.keys() | self.fresh.keys())
        lines = [f"{self.network}: {len(self.state)} of {total} tensors match, {self.share:.1%} of the parameters"]
        for reason in (NO_COUNTERPART, VALUE_ONLY):
            lines += _summary(f"start fresh, {reason}", [name for name, why in self.fresh.items() if why == reason])
        # The report shows one entry per layer, and the first block for all blocks of a stage.
        layers = {re.sub(r"blocks\.\d+", "blocks.*", name.rpartition(".")[0] or name): why
                  for name, why in reversed(self.reshaped.items())}  # fmt: skip
        lines += [f"  {len(self.reshaped)} start fresh, of another shape:"] if layers else []
        lines += [f"    {layer}: {why}" for layer, why in reversed(layers.items())]
        return "\n".join([*lines, *_summary("of the file unused", (*self.dropped, *self.unused.values()))])

    def check_blocks(self, backbone: str) -> None:
        """Raise UserError unless the file's network has as many blocks as the backbone."""
        filled = {block_of(name) for name in self.state}
        lost = {block: name for name in self.fresh if (block := block_of(name)) not in filled}
        extra = {block: name for new, name in self.unused.items() if (block := block_of(new)) not in filled}
        lost.pop(None, None), extra.pop(None, None)
        if lost or extra:
            raise UserError(
                f"the {self.network} weights are of another size than {backbone}: {len(lost)} of its blocks are not in the file, "
                f"and {len(extra)} blocks of the file have no place"
                + "".join(f"; for instance {next(iter(names.values()))}" for names in (lost, extra) if names)
            )


def block_of(name: str) -> str | None:
    """Return the block that an entry of a backbone belongs to; None outside of blocks."""
    block = re.match(r"stages\.\d+\.blocks\.\d+", name)
    return block[0] if block else None


def _summary(label: str, names: Sequence[str]) -> list[str]:
    """Return a line with the names, each once and with its indices as ``*``."""
    layers = list(dict.fromkeys(re.sub(r"(?<![^.])\d+(?![^.])", "*", name) for name in names))
    more = f" and {len(layers) - _SHOWN} more" if len(layers) > _SHOWN else ""
    return [f"  {len(names)} {label}: {', '.join(layers[:_SHOWN])}{more}"] if names else []


def different_shapes(targets: Tensor, published: Tensor) -> str:
    here, there = ("x".join(map(str, tensor.shape)) or "a number" for tensor in (targets, published))
    return f"{here} here, {there} in the file"


def match(renamed: Renamed, backbone: nn.Module) -> Match:
    """Find the entries that match ``backbone``, without loading them; position tables of another grid are interpolated."""
    state, targets = dict(renamed.state), backbone.state_dict()
    partial = _join_projections(state, targets)
    state |= {name: adapt_channels(tensor, targets.get(name)) for name, tensor in state.items()}
    sizes = {name: tensor.numel() for name, tensor in state.items()}
    for name in list(state):
        if name in targets and state[name].shape[2:] == (1, 1) and targets[name].ndim == 2:
            state[name] = state[name].flatten(1)  # a pointwise convolution is a linear layer here
    for module_name, module in backbone.named_modules():
        for key in module.on_grid if isinstance(module, ResizeOnLoad) else ():
            if (name := f"{module_name}.{key}" if module_name else key) in state:
                # Also of an equal shape: 24x24 and 18x32 have as many positions. Published networks have square grids.
                state[name] = module.fit(key, state[name])
    matched = {name: state[name] for name in targets if name in state and state[name].shape == targets[name].shape}
    for name, tensor in matched.items():  # averaged weights may hold counters as floating point numbers
        matched[name] = tensor if targets[name].is_floating_point() else tensor.to(targets[name].dtype)
    fresh = partial | {
        name: different_shapes(tensor, state[name]) if name in state else NO_COUNTERPART
        for name, tensor in targets.items()
        if name not in matched and name not in partial
    }
    parameters = {name: value.numel() for name, value in backbone.named_parameters()}
    counts = {name: count / (3 if name in partial else 1) for name, count in parameters.items() if name in matched}
    origins = renamed.origins
    return Match(
        renamed.network,
        matched,
        fresh,
        renamed.dropped,
        unused={name: origins[name] for name in state if name not in targets and name in origins},
        resized=tuple(name for name in matched if matched[name].numel() != sizes.get(name, -1)),
        share=sum(counts.values()) / sum(parameters.values()),
    )


def closest(state: Mapping[str, Tensor], network: Network, as_classifier: bool) -> tuple[type[Backbone], str, Match]:
    """Return the backbone and arch that ``state`` fills most, and the matching weights.

    Among equal ones, those with the fewest interpolated and then the fewest unused entries are returned, and then the first.
    ``as_classifier`` builds the backbones with their options under a classifier.
    """
    shapes = {name: tensor.to("meta") for name, tensor in state.items()}

    def build(host: type[Backbone], arch: str) -> Backbone:
        return host(arch, **(host.classifier if as_classifier else {}))

    matches = {}
    for host in hosts_of(network):
        renamed = rename(shapes, network, host)
        for arch in host.arch_settings:
            with torch.device("meta"):
                matches[host, arch] = match(renamed, build(host, arch))
    order = {
        key: (round(one.share, 6), -len(one.resized), -len(one.unused) - len(one.dropped))
        for key, one in matches.items()
    }
    host, arch = best = max(order, key=order.get)
    # A backbone with values is needed only for projections joined from the file's and initial values.
    with torch.device("cpu" if VALUE_ONLY in matches[best].fresh.values() else "meta"):
        backbone = build(host, arch)
    return host, arch, match(rename(state, network, host), backbone)


def _join_projections(state: dict[str, Tensor], targets: Mapping[str, Tensor]) -> dict[str, str]:
    """Join [q] and [k | v] to [q | k | v] if our operator has one projection, and rename CSwin's single position branch.

    Returns:
        Joint projections of which the file has at most the value, each with the reason.
    """
    partial = {}
    for query_gate in [name for name in state if ".attn.qg." in name]:
        (query, gate), key_value = state.pop(query_gate).chunk(2), state.pop(query_gate.replace(".qg.", ".kv."))
        state[query_gate.replace(".qg.", ".qkvg.")] = torch.cat([query, key_value, gate])
    for name in [name for name in state if ".lepe.0." in name]:
        if (single := name.replace(".lepe.0.", ".lepe.")) in targets:
            state[single] = state.pop(name)
    for joint in [name for name in targets if name.endswith((".attn.qkv.weight", ".attn.qkv.bias"))]:
        query, key_value, value = (joint.replace(".qkv.", f".{each}.") for each in ("q", "kv", "v"))
        if query in state and key_value in state:
            state[joint] = torch.cat([state.pop(query), state.pop(key_value)])
        elif value in state:
            *others, third = targets[joint].chunk(3)
            if third.shape == state[value].shape:
                state[joint], partial[joint] = torch.cat([*others, state.pop(value).to(third)]), VALUE_ONLY
            else:
                partial[joint] = f"its value {different_shapes(third, state.pop(value))}"
    return partial
