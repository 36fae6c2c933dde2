"""Matching of published weights with a backbone by name and shape, with the reasons for the rest."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from logging import WARNING

import torch
from mmengine.logging import print_log
from timm.layers import resample_patch_embed
from torch import Tensor, nn

from mmlisa.checkpoints import adapt_channels
from mmlisa.errors import UserError
from mmlisa.models.backbones.base import Backbone
from mmlisa.models.layers.grids import ResizeOnLoad
from mmlisa.models.published import Network

from .renaming import known_networks, recognise, rename

NO_COUNTERPART = "no counterpart in the file"
VALUE_ONLY = "except for their value, because query and key differ from the host's"
_SHOWN = 40  # names in a line of a report
_PATCHES = "stem.proj.weight"  # of vision transformers


@dataclass(frozen=True)
class Match:
    """Weights of a file that match a backbone.

    Attributes:
        network: the file's network.
        state: matching weights under the backbone's names.
        fresh: entries of the backbone that the file lacks or has only in part, each with the reason.
        unused: names in the file without a counterpart, each with its name under our rules; None if the rules drop it.
        resized: number of entries that were interpolated from another grid.
        share: share of the backbone's parameters that the file fills.
        resampled: what was resampled to another size of the patches, as a line of the report.
    """

    network: Network
    state: dict[str, Tensor]
    fresh: dict[str, str]
    unused: dict[str, str | None]
    resized: int
    share: float
    resampled: str

    def report(self) -> str:
        """Return a summary as text: what matches, what starts fresh, and why."""
        total = len(self.state.keys() | self.fresh.keys())
        text = f"{self.network.name}: {len(self.state)} of {total} tensors match, {self.share:.1%} of the parameters"
        text += self.resampled
        reasons: dict[str, list[str]] = {}
        for name, why in self.fresh.items():
            reasons.setdefault(why, []).append(name)
        for why, names in reasons.items():
            text += f"\n  {len(names)} start fresh, {why}: {_layers(names)}"
        return text + (f"\n  {len(self.unused)} of the file unused: {_layers(self.unused)}" if self.unused else "")

    def check_share(self, source: str, backbone: str, min_matched: float) -> None:
        """Raise UserError if the file fills less than ``min_matched`` of the parameters, and warn below a half."""
        if not self.state or self.share < min_matched:
            limit = f"less than min_matched={min_matched:g}"
            raise UserError(f"source {source!r} fills {self.share:.1%} of {backbone}, {limit}: {self.report()}")
        if self.share < 0.5:
            text = f"{source!r} fills {self.share:.1%} of the parameters of {backbone}; the others start from random values"
            print_log(text, logger="current", level=WARNING)

    def check_size(self, backbone: str, shapes: bool = True) -> None:
        """Raise UserError unless the file's network has as many blocks as the backbone and, if ``shapes``, their shapes."""
        filled = {block_of(name) for name in self.state} | {None}
        lost = {block: name for name in self.fresh if (block := block_of(name)) not in filled}
        extra = {block: theirs for theirs, ours in self.unused.items() if (block := block_of(ours or "")) not in filled}
        if lost or extra:
            raise UserError(
                f"the {self.network.name} weights are of another size than {backbone}: {len(lost)} of its blocks are not in the "
                f"file, and {len(extra)} blocks of the file have no place"
                + "".join(f"; for instance {next(iter(names.values()))}" for names in (lost, extra) if names)
            )
        others = [*self.fresh, *(ours or "" for ours in self.unused.values())]
        if other := [name for name in others if any(part in name for part in self.network.needed)]:
            raise UserError(
                f"the {self.network.name} weights are those of another arch than {backbone}: {other[0]} is only in one of the "
                f"two, or of another shape. {self.report()}"
            )
        if shapes and not {NO_COUNTERPART, VALUE_ONLY}.issuperset(self.fresh.values()):
            raise UserError(f"the weights are of another size than {backbone}: {self.report()}")


def block_of(name: str) -> str | None:
    """Return the block that an entry of a backbone belongs to; None outside of blocks."""
    block = re.match(r"stages\.\d+\.blocks\.\d+", name)
    return block[0] if block else None


def _layers(names: Iterable[str]) -> str:
    """List names, each once and with its indices as ``*``."""
    layers = list(dict.fromkeys(re.sub(r"(?<![^.])\d+(?![^.])", "*", name) for name in names))
    return ", ".join(layers[:_SHOWN]) + (f" and {len(layers) - _SHOWN} more" if len(layers) > _SHOWN else "")


def _size(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "a number"


def _different_shapes(target: Tensor, published: Tensor) -> str:
    return f"of another shape, {_size(target.shape)} here, {_size(published.shape)} in the file"


def fit(targets: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the entries that have the name and shape of a target, and for every other target the reason."""
    fitting = {name: state[name] for name in targets if name in state and state[name].shape == targets[name].shape}
    fresh = {}
    for name, target in targets.items():
        if name in fitting:
            continue
        if name not in state:
            fresh[name] = NO_COUNTERPART
            continue
        fresh[name] = _different_shapes(target, state[name])
        if name == _PATCHES and target.shape[:2] == state[name].shape[:2]:
            fresh[name] += " (resample_patches=True of PublishedWeights resamples it)"
    return fitting, fresh


def match(published: Mapping[str, Tensor], backbone: nn.Module, resample_patches: bool = False) -> Match:
    """Find the weights of a published network that match ``backbone``, without loading them.

    Position tables of another grid are interpolated.

    Args:
        published: weights under the names of the file, without a prefix.
        resample_patches: resample a patch embedding of another patch size (Beyer et al., "FlexiViT", eq. 5).

    Raises:
        UserError: an unknown network, or one that the backbone does not take.
    """
    network, targets = recognise(published, type(backbone)), backbone.state_dict()
    if foreign := [name for name in published if any(part in name for part in network.foreign)]:
        raise UserError(
            f"the weights are not those of {network.name}: {foreign[0]} has no place in {type(backbone).__name__}"
        )
    state, origins, dropped = rename(published, network, type(backbone))
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
    _check_orientation(targets, state)
    resampled = _resample_patches(targets, state) if resample_patches else ""
    matched, fresh = fit(targets, state)
    for name, tensor in matched.items():  # averaged weights may hold counters as floating point numbers
        matched[name] = tensor if targets[name].is_floating_point() else tensor.to(targets[name].dtype)
    parameters = {name: value.numel() for name, value in backbone.named_parameters()}
    counts = {name: count / (3 if name in partial else 1) for name, count in parameters.items() if name in matched}
    unused = {origins[name]: name for name in state if name not in targets and name in origins}
    return Match(
        network,
        matched,
        # A report begins with the partial ones. Those that do not fit are in fresh too, with a less exact reason.
        partial | fresh | partial,
        unused=dict.fromkeys(dropped) | unused,
        resized=sum(tensor.numel() != sizes.get(name, -1) for name, tensor in matched.items()),
        share=sum(counts.values()) / sum(parameters.values()),
        resampled=resampled,
    )


def _resample_patches(targets: Mapping[str, Tensor], state: dict[str, Tensor]) -> str:
    """Give the patch embedding the patch size of the backbone, and return a line for the report."""
    wanted, tensor = targets.get(_PATCHES), state.get(_PATCHES)
    if wanted is None or tensor is None or wanted.shape[:2] != tensor.shape[:2] or wanted.shape == tensor.shape:
        return ""
    state[_PATCHES] = resample_patch_embed(tensor, list(wanted.shape[2:])).to(tensor.dtype)
    return f"\n  {_PATCHES} was resampled from {_size(tensor.shape[2:])} to {_size(wanted.shape[2:])}"


def _check_orientation(targets: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
    """Refuse files of transposed matrices, whose square ones would fit."""
    for name, tensor in state.items():
        wanted = getattr(targets.get(name), "shape", ())
        if len(wanted) == 2 and wanted[0] != wanted[1] and tensor.shape == wanted[::-1]:
            shapes = f"{name} is {_size(tensor.shape)} in the file and {_size(wanted)} here"
            remedy = "transpose the weights of all linear layers, as PaddlePaddle saves them"
            raise UserError(f"the matrices of the file are transposed: {shapes}; {remedy}")


def closest(state: Mapping[str, Tensor], as_classifier: bool) -> tuple[type[Backbone], str, Match]:
    """Return the backbone and arch that ``state`` fills most, and the matching weights.

    Among equal ones, those with the fewest interpolated and then the fewest unused entries are returned, and then the first.
    ``as_classifier`` builds the backbones with their options under a classifier.
    """
    shapes = {name: tensor.to("meta") for name, tensor in state.items()}

    def build(host: type[Backbone], arch: str) -> Backbone:
        return host(arch, **(host.classifier if as_classifier else {}))

    matches = {}
    for host in known_networks()[recognise(state)]:
        for arch in host.arch_settings:
            with torch.device("meta"):
                matches[host, arch] = match(shapes, build(host, arch))
    order = {key: (round(one.share, 6), -one.resized, -len(one.unused)) for key, one in matches.items()}
    host, arch = best = max(order, key=order.get)
    # A backbone with values is needed only for projections joined from the file's and initial values.
    with torch.device("cpu" if VALUE_ONLY in matches[best].fresh.values() else "meta"):
        backbone = build(host, arch)
    return host, arch, match(state, backbone)


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
                partial[joint] = f"its value {_different_shapes(third, state.pop(value))}"
    return partial


def inflate(state: Mapping[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Inflate the weights of an image model for the video form of the same model (journal paper of LiSA, Sec. 5.4).

    Convolutions and LiSA's kernels get a time axis, with their taps at the temporal offset zero, so the model initially
    processes each frame like an image. Position embeddings are repeated over time. All other weights are unchanged.

    Args:
        state: weights of the image model, under the video model's names.
        model: the video model; its grid may differ from the image model's in time only.

    Raises:
        UserError: weights that do not fit the model, or more blocks than it has; the message names them.
    """
    targets = model.state_dict()
    inflated = {name: _inflate(name, tensor, targets[name]) for name, tensor in state.items() if name in targets}
    if wrong := sorted(fit(targets, inflated)[1]):
        raise UserError(f"{len(wrong)} of {len(targets)} weights do not fit the video model, among them {wrong[:3]}")
    if lost := sorted({block_of(name) for name in state} - {block_of(name) for name in targets} - {None}):
        raise UserError(f"the video model lacks {len(lost)} blocks of the image model, among them {lost[:3]}")
    return inflated


def _inflate(name: str, source: Tensor, target: Tensor) -> Tensor:
    if source.ndim != target.ndim - 1:
        return source
    axis = target.ndim - 3  # of time, in a grid (T, H, W)
    length = target.shape[axis]
    repeated = source.unsqueeze(axis).expand(*source.shape[:axis], length, *source.shape[axis:])
    parameter = name.rpartition(".")[2]
    if parameter == "position_embedding":
        return repeated.clone()
    # The origin of LiSA's circular kernels has the index 0; the origin of a convolution is its middle.
    origin = 0 if parameter in ("kernel_a", "kernel_b") else length // 2
    return torch.zeros_like(repeated).index_copy_(axis, torch.tensor([origin]), source.unsqueeze(axis))
