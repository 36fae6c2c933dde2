"""Matching of a checkpoint with a model, and loading of the entries that match."""

from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmengine.logging import print_log
from torch import Tensor, nn

from .reading import CheckpointError, read_checkpoint


def adapt_state_dict(model: nn.Module, state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a copy without the names of wrappers, with the stem's input channels, and with tables of another grid resampled.

    Entries that fit already stay as they are, so a second call costs nothing.
    """
    weights, adapted = model.state_dict(), below_prefix(state_dict, "")
    adapted.update({name: adapt_channels(tensor, weights.get(name)) for name, tensor in adapted.items()})
    for name, module in model.named_modules():
        if hasattr(module, "adapt_state_dict"):
            module.adapt_state_dict(adapted, f"{name}." if name else "", adapted._metadata.get(name, {}))
    return adapted


def adapt_channels(loaded: Tensor, weight: Tensor | None) -> Tensor:
    """Return the weight of a convolution of RGB for the input channels of ``weight``, as timm does; any other weight as it is."""
    shape, wanted = getattr(loaded, "shape", ()), getattr(weight, "shape", ())  # an extra state may be any object
    if len(wanted) != 4 or shape == wanted or shape != (wanted[0], 3, *wanted[2:]):
        return loaded
    from timm.models import adapt_input_conv

    return adapt_input_conv(wanted[1], loaded)


def below_prefix(state_dict: Mapping[str, Tensor], prefix: str) -> "OrderedDict[str, Tensor]":
    """Return the entries whose names start with ``prefix``, without it, and the metadata of their modules, such as grids.

    The names of wrappers, ``module.`` of parallel training and ``_orig_mod.`` of torch.compile, do not count.
    """
    prefix = prefix.removeprefix("module.")

    def select(entries: Mapping[str, Any]) -> "OrderedDict[str, Any]":
        plain = {name.removeprefix("module.").replace("_orig_mod.", ""): entry for name, entry in entries.items()}
        return OrderedDict((name.removeprefix(prefix), each) for name, each in plain.items() if name.startswith(prefix))

    below, metadata = select(state_dict), getattr(state_dict, "_metadata", None) or {}
    of_modules = select({f"{name}.": dict(entry) for name, entry in metadata.items()})
    below._metadata = OrderedDict((name.removesuffix("."), entry) for name, entry in of_modules.items())
    return below


def match_report(model: nn.Module, state_dict: Mapping[str, Tensor]) -> tuple[float, str]:
    """Return the share of the model's entries that ``state_dict`` holds in a shape that fits, and a line that describes it."""
    weights, loaded = model.state_dict(), adapt_state_dict(model, state_dict)
    matched = _matching(weights, loaded)
    lists = {
        "missing": [name for name in weights if name not in loaded],
        "of another shape": [name for name in weights if name in loaded and name not in matched],
        "not in the model": [name for name in loaded if name not in weights],
    }
    line = f"{len(matched)} of {len(weights)} entries match"
    for label, names in lists.items():
        if names:
            line += f", {len(names)} {label} ({', '.join(names[:3])}{', …' if len(names) > 3 else ''})"
    return len(matched) / max(len(weights), 1), line


def _matching(weights: Mapping[str, Tensor], loaded: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the entries of ``loaded`` that fit; extra states of modules, which may be any object, have no shape."""
    shapes = {name: getattr(each, "shape", None) for name, each in weights.items()}
    return {n: loaded[n] for n in shapes if n in loaded and getattr(loaded[n], "shape", None) == shapes[n]}


def check_match(model: nn.Module, state_dict: Mapping[str, Tensor], filename: str, min_matched: float) -> None:
    """Log the :func:`match_report`; a share below ``min_matched``, NaN or another kind of number is a CheckpointError."""
    weights, (share, line) = model.state_dict(), match_report(model, state_dict)
    if share < min_matched:
        remedy = "; add prefix='backbone.'" * any(f"backbone.{name}" in state_dict for name in weights)
        limit = f"min_matched is {min_matched:.0%}"
        raise CheckpointError(f"checkpoint {filename} is of another model: {line}; {limit}{remedy}")
    print_log(f"{filename}: {line}", logger="current")
    tensors = {name: each for name, each in _matching(weights, state_dict).items() if isinstance(each, Tensor)}
    for name, tensor in tensors.items():
        if tensor.is_floating_point() != weights[name].is_floating_point() or tensor.isnan().any():
            raise CheckpointError(f"checkpoint {filename}: {name} ({tensor.dtype}) holds NaN or is not a weight")


def state_dict_of(checkpoint: Mapping[str, Any], filename: str = "") -> Mapping[str, Tensor]:
    """Return the weights of a checkpoint: its entry ``state_dict`` or ``model``, or else all of it.

    With ``filename``, the log says if averaged weights beside them are not taken. An entry that is not a tensor is a
    CheckpointError.
    """
    key = next((key for key in ("state_dict", "model") if isinstance(checkpoint.get(key), Mapping)), None)
    state = checkpoint[key] if key else checkpoint
    if key and filename:
        note_averages(checkpoint, key, filename)
    for name, value in state.items():
        if not isinstance(value, Tensor) and not str(name).endswith("_extra_state"):
            raise CheckpointError(f"checkpoint {filename}: {name!r} is a {type(value).__name__}, not a tensor")
    return state


def averaged_entry(checkpoint: Mapping[str, Any]) -> str | None:
    """Return the entry of averaged weights, such as ``model_ema``; that of MMEngine, ``ema_state_dict``, holds the others."""
    names = (name for name, each in checkpoint.items() if isinstance(each, Mapping) and name != "ema_state_dict")
    return next((name for name in names if "ema" in str(name).split("_")), None)


def note_averages(checkpoint: Mapping[str, Any], key: str, filename: str) -> None:
    """Log that the entry ``key`` of a checkpoint is loaded, if there are averaged weights, too."""
    if averaged := averaged_entry(checkpoint):
        hint = "ema=True of mmlisa.PublishedWeights and --ema of mmlisa convert take those"
        print_log(f"{filename}: loads {key!r}, not the averaged weights in {averaged!r}; {hint}", logger="current")


def load_weights(model: nn.Module, source: str | Path, min_matched: float = 0.9) -> dict[str, Any]:
    """Load the weights of ``source`` and return the whole checkpoint; see :func:`read_checkpoint`, :func:`load_state_dict`."""
    checkpoint = read_checkpoint(source)
    load_state_dict(model, state_dict_of(checkpoint, str(source)), str(source), min_matched)
    return checkpoint


def load_state_dict(model: nn.Module, state: Mapping[str, Tensor], filename: str, min_matched: float = 0.9) -> None:
    """Load the entries of ``state`` that match; ``filename`` is for messages.

    Raises:
        CheckpointError: less than the share ``min_matched`` of the model's entries match in name and shape, or an entry is not a
            weight.
    """
    state = adapt_state_dict(model, state)
    check_match(model, state, filename, min_matched)
    model.load_state_dict(_matching(model.state_dict(), state), strict=False)
