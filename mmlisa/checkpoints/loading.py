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
    if not (isinstance(weight, Tensor) and isinstance(loaded, Tensor)):  # the extra state of a module may be any object
        return loaded
    is_stem = weight.ndim == loaded.ndim == 4 and loaded.shape[1] == 3 != weight.shape[1]
    if not is_stem or weight.shape[::2] != loaded.shape[::2] or weight.shape[3] != loaded.shape[3]:
        return loaded
    from timm.models import adapt_input_conv

    return adapt_input_conv(weight.shape[1], loaded)


def below_prefix(state_dict: Mapping[str, Tensor], prefix: str) -> "OrderedDict[str, Tensor]":
    """Return the entries whose names start with ``prefix``, without it, and the metadata of their modules, such as grids.

    The names of wrappers, ``module.`` of parallel training and ``_orig_mod.`` of torch.compile, do not count.
    """
    prefix = prefix.removeprefix("module.")

    def select(entries: Mapping[str, Any]) -> "OrderedDict[str, Any]":
        plain = {name.removeprefix("module.").replace("_orig_mod.", ""): entry for name, entry in entries.items()}
        return OrderedDict((name.removeprefix(prefix), each) for name, each in plain.items() if name.startswith(prefix))

    below = select(state_dict)
    metadata = select(
        {f"{name}.": dict(entry) for name, entry in (getattr(state_dict, "_metadata", None) or {}).items()}
    )
    below._metadata = OrderedDict((name.removesuffix("."), entry) for name, entry in metadata.items())
    return below


def match_report(model: nn.Module, state_dict: Mapping[str, Tensor]) -> tuple[float, str]:
    """Return the share of the model's entries that ``state_dict`` holds in a shape that fits, and a line that describes it."""
    weights, loaded = model.state_dict(), adapt_state_dict(model, state_dict)
    matched = _matching(weights, loaded)
    missing = [name for name in weights if name not in loaded]
    reshaped = [name for name in weights if name in loaded and name not in matched]
    unexpected = [name for name in loaded if name not in weights]
    line = f"{len(matched)} of {len(weights)} entries match"
    for label, names in (("missing", missing), ("of another shape", reshaped), ("not in the model", unexpected)):
        if names:
            line += f", {len(names)} {label} ({', '.join(names[:3])}{', …' if len(names) > 3 else ''})"
    return len(matched) / max(len(weights), 1), line


def _matching(weights: Mapping[str, Tensor], loaded: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the entries of ``loaded`` that fit; extra states of modules, which may be any object, have no shape."""
    shapes, offered = (
        {name: getattr(each, "shape", None) for name, each in state.items()} for state in (weights, loaded)
    )
    return {name: loaded[name] for name in weights if name in loaded and offered[name] == shapes[name]}


def check_match(model: nn.Module, state_dict: Mapping[str, Tensor], filename: str, min_matched: float) -> None:
    """Log the report of :func:`match_report` for an adapted ``state_dict``.

    Raises:
        CheckpointError: the share is below ``min_matched``; or a matching entry holds NaN or another kind of number.
    """
    share, line = match_report(model, state_dict)
    if share < min_matched:
        prefixed = any(f"backbone.{name}" in state_dict for name in model.state_dict())
        remedy = "; add prefix='backbone.'" if prefixed else ""
        raise CheckpointError(
            f"checkpoint {filename} is of another model: {line}; min_matched is {min_matched:.0%}{remedy}"
        )
    print_log(f"{filename}: {line}", logger="current")
    weights = model.state_dict()
    for name, tensor in _matching(weights, state_dict).items():
        if not isinstance(tensor, Tensor):
            continue
        if tensor.is_floating_point() != weights[name].is_floating_point() or tensor.isnan().any():
            raise CheckpointError(f"checkpoint {filename}: {name} ({tensor.dtype}) holds NaN or is not a weight")


def state_dict_of(checkpoint: Mapping[str, Any], filename: str = "") -> Mapping[str, Tensor]:
    """Return the weights of a checkpoint: its entry ``state_dict`` or ``model``, or else all of it.

    With ``filename``, a line of the log says that averaged weights beside them are not taken.

    Raises:
        CheckpointError: an entry that is not a tensor.
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
    """Load the weights of a checkpoint into ``model`` and return the whole checkpoint.

    Args:
        model: the model to load into.
        source: a file or an address, see :func:`read_checkpoint`.
        min_matched: share of the model's entries that must match in name and shape.

    Raises:
        OSError: the file cannot be read or downloaded.
        CheckpointError: a damaged or unsafe file, weights of another model, or values that are not weights.
    """
    checkpoint = read_checkpoint(source)
    load_state_dict(model, state_dict_of(checkpoint, str(source)), str(source), min_matched)
    return checkpoint


def load_state_dict(model: nn.Module, state: Mapping[str, Tensor], filename: str, min_matched: float = 0.9) -> None:
    """Load the entries of ``state`` that match; ``filename`` is for messages.

    Raises:
        CheckpointError: fewer entries than ``min_matched`` match, or values that are not weights.
    """
    state = adapt_state_dict(model, state)
    check_match(model, state, filename, min_matched)
    model.load_state_dict(_matching(model.state_dict(), state), strict=False)
