"""How well a checkpoint fits a model, and loading of what fits."""

from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmengine.logging import print_log
from torch import Tensor, nn

from .download import fetch_checkpoint
from .reading import CheckpointError

_HINT = "--min-matched sets another share"


def adapt_state_dict(model: nn.Module, state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a copy without the prefix of a data-parallel wrapper, and with tables of another grid resampled.

    Entries that fit already stay as they are, so a second call costs nothing.
    """
    adapted = OrderedDict((name.removeprefix("module."), tensor) for name, tensor in state_dict.items())
    metadata = getattr(state_dict, "_metadata", None) or {}
    adapted._metadata = OrderedDict((name.removeprefix("module."), dict(of)) for name, of in metadata.items())
    for name, module in model.named_modules():
        if hasattr(module, "adapt_state_dict"):
            module.adapt_state_dict(adapted, f"{name}." if name else "", adapted._metadata.get(name, {}))
    return adapted


def below_prefix(state_dict: Mapping[str, Tensor], prefix: str) -> "OrderedDict[str, Tensor]":
    """Return the entries whose names start with ``prefix``, without it, and what their modules noted, such as grids."""
    part = OrderedDict((name.removeprefix(prefix), t) for name, t in state_dict.items() if name.startswith(prefix))
    modules = {f"{name}.": of for name, of in (getattr(state_dict, "_metadata", None) or {}).items()}
    part._metadata = OrderedDict(
        (name.removeprefix(prefix).removesuffix("."), of) for name, of in modules.items() if name.startswith(prefix)
    )
    return part


def match_report(model: nn.Module, state_dict: Mapping[str, Tensor]) -> tuple[float, str]:
    """Return the share of the model's entries that ``state_dict`` holds in a shape that fits, and a line that describes it."""
    return _report(model.state_dict(), adapt_state_dict(model, state_dict))


def _report(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> tuple[float, str]:
    matched = _fitting(ours, theirs)
    missing = [name for name in ours if name not in theirs]
    reshaped = [name for name in ours if name in theirs and name not in matched]
    unexpected = [name for name in theirs if name not in ours]
    line = f"{len(matched)} of {len(ours)} entries match"
    for label, names in (("missing", missing), ("of another shape", reshaped), ("not in the model", unexpected)):
        if names:
            line += f", {len(names)} {label} ({', '.join(names[:3])}{', …' if len(names) > 3 else ''})"
    return len(matched) / max(len(ours), 1), line


def _fitting(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: theirs[name] for name in ours if name in theirs and theirs[name].shape == ours[name].shape}


def check_values(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor], filename: str) -> None:
    """Refuse values that cannot be weights of the model, among the entries that fit.

    Raises:
        CheckpointError: integers, booleans or complex numbers where the model has real ones, or the reverse; NaN.
    """
    for name, tensor in _fitting(ours, theirs).items():
        if tensor.is_floating_point() != ours[name].is_floating_point() or tensor.is_complex():
            raise CheckpointError(f"checkpoint {filename}: {name} is {tensor.dtype}; the model has {ours[name].dtype}")
        if tensor.is_floating_point() and tensor.isnan().any():
            raise CheckpointError(
                f"checkpoint {filename}: {int(tensor.isnan().sum())} of the {tensor.numel()} values of {name} are NaN"
            )


def state_dict_of(checkpoint: Mapping[str, Any], filename: str = "") -> Mapping[str, Tensor]:
    """Return the weights of a checkpoint: its entry ``state_dict`` or ``model``, or else all of it.

    Raises:
        CheckpointError: an entry that is not a tensor, or a name that is not a string.
    """
    state = next((checkpoint[key] for key in ("state_dict", "model") if isinstance(checkpoint.get(key), Mapping)), None)
    state = checkpoint if state is None else state
    for name, value in state.items():
        if not isinstance(name, str) or not (isinstance(value, Tensor) or name.endswith("_extra_state")):
            raise CheckpointError(
                f"checkpoint {filename}: {name!r} is a {type(value).__name__}, not a tensor with a name"
            )
    return state


def load_weights(model: nn.Module, filename: str | Path, min_matched: float = 0.9, hint: str = _HINT) -> dict[str, Any]:
    """Load the weights of a checkpoint into ``model`` and return the whole checkpoint.

    Args:
        model: the model to load into.
        filename: a file or an address, see :func:`fetch_checkpoint`.
        min_matched: share of the model's entries that must match in name and shape.
        hint: what to do if fewer match, for the message.

    Raises:
        FileNotFoundError: no such file.
        CheckpointError: a damaged or unsafe file, weights of another model, or values that are not weights.
    """
    checkpoint = fetch_checkpoint(str(filename))
    load_state_dict(model, state_dict_of(checkpoint, str(filename)), str(filename), min_matched, hint)
    return checkpoint


def load_state_dict(
    model: nn.Module, state: Mapping[str, Tensor], filename: str, min_matched: float = 0.9, hint: str = _HINT
) -> None:
    """Load the entries of ``state`` that fit; ``filename`` and ``hint``, how to change the threshold, are for messages.

    Raises:
        CheckpointError: fewer entries than ``min_matched`` fit, or values that are not weights.
    """
    ours, theirs = model.state_dict(), adapt_state_dict(model, state)
    check_share(*_report(ours, theirs), filename, min_matched, hint)
    check_values(ours, theirs, filename)
    model.load_state_dict(_fitting(ours, theirs), strict=False)


def check_share(share: float, line: str, filename: str, min_matched: float, hint: str = _HINT) -> None:
    """Log the report of :func:`match_report`, and refuse a checkpoint below the threshold with CheckpointError."""
    if share < min_matched:
        raise CheckpointError(
            f"checkpoint {filename} is of another model: {line}. At least {min_matched:.0%} must match; {hint}"
        )
    print_log(f"{filename}: {line}", logger="current")
