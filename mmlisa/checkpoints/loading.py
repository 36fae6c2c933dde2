"""How well a checkpoint fits a model, and loading what fits."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from mmengine.logging import print_log
from mmengine.model import BaseModule, PretrainedInit, update_init_info
from mmengine.registry import WEIGHT_INITIALIZERS
from torch import Tensor, nn

from .download import fetch_checkpoint
from .reading import CheckpointError

_PRETRAINED = ("Pretrained", "PretrainedInit", PretrainedInit)
_PUBLISHED = "mmlisa.PublishedWeights"


def adapt_state_dict(model: nn.Module, state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A copy without a data-parallel wrapper's prefix, what depends on the grid resampled by the modules that load it.

    What fits already stays as it is, so a second call costs nothing.
    """
    adapted = OrderedDict((name.removeprefix("module."), tensor) for name, tensor in state_dict.items())
    adapted._metadata = getattr(state_dict, "_metadata", OrderedDict())
    for name, module in model.named_modules():
        if hasattr(module, "adapt_state_dict"):
            module.adapt_state_dict(adapted, f"{name}." if name else "")
    return adapted


def match_report(model: nn.Module, state_dict: Mapping[str, Tensor]) -> tuple[float, str]:
    """The share of the model's entries that ``state_dict`` holds in a shape that fits, and a line that says so."""
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
    """Refuses values that cannot be weights of the model, among the entries that fit.

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
    """The weights of a checkpoint: what stands under ``state_dict`` or ``model``, or else all of it.

    Raises:
        CheckpointError: an entry that is no tensor, a name that is no string.
    """
    state = next((checkpoint[key] for key in ("state_dict", "model") if isinstance(checkpoint.get(key), Mapping)), None)
    state = checkpoint if state is None else state
    for name, value in state.items():
        if not isinstance(name, str) or not (isinstance(value, Tensor) or name.endswith("_extra_state")):
            raise CheckpointError(
                f"checkpoint {filename}: {name!r} is a {type(value).__name__}, not a tensor with a name"
            )
    return state


def load_weights(model: nn.Module, filename: str | Path, min_matched: float = 0.9) -> dict[str, Any]:
    """Loads a checkpoint's weights into ``model`` and returns the whole checkpoint.

    Args:
        model: what to load into.
        filename: a file, or an address as :func:`fetch_checkpoint` takes it.
        min_matched: share of the model's entries that must match in name and shape.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a damaged or unsafe file, weights of another model, or values that are no weights.
    """
    checkpoint = fetch_checkpoint(str(filename))
    theirs = adapt_state_dict(model, state_dict_of(checkpoint, str(filename)))
    _load(model, theirs, str(filename), min_matched, "--min-matched changes that")
    return checkpoint


def _load(model: nn.Module, theirs: Mapping[str, Tensor], filename: str, min_matched: float, hint: str) -> None:
    ours = model.state_dict()
    check_share(*_report(ours, theirs), filename, min_matched, hint)
    check_values(ours, theirs, filename)
    model.load_state_dict(_fitting(ours, theirs), strict=False)


def check_share(
    share: float, line: str, filename: str, min_matched: float, hint: str = "--min-matched changes that"
) -> None:
    """Logs the report of :func:`match_report`, and refuses a checkpoint below the threshold with CheckpointError."""
    if share < min_matched:
        raise CheckpointError(
            f"checkpoint {filename} is of another model: {line}. At least {min_matched:.0%} must match; {hint}"
        )
    print_log(f"{filename}: {line}", logger="current")


@contextmanager
def loading_from_init_cfg(module: BaseModule) -> Iterator[None]:
    """Around MMEngine's ``init_weights``: reads ``Pretrained`` and ``mmlisa.PublishedWeights`` of ``module.init_cfg``.

    Whoever started the process, they are read by :func:`fetch_checkpoint` and thus run no code; once, after everything else
    was initialised; and a checkpoint that holds less than half of the module is refused.
    ``init_cfg=dict(type='Pretrained', …, min_matched=0)`` changes that share.

    Raises:
        ValueError: such a checkpoint, with the counts.
    """
    init_cfg = module.init_cfg
    configs = [init_cfg] if isinstance(init_cfg, dict) else list(init_cfg or [])
    files = [cfg for cfg in configs if cfg.get("type") in (*_PRETRAINED, _PUBLISHED)] if not module.is_init else []
    module.init_cfg = [cfg for cfg in configs if cfg not in files] or None
    try:
        yield
    finally:
        module.init_cfg = init_cfg
    for cfg in files:
        if cfg["type"] == _PUBLISHED:
            WEIGHT_INITIALIZERS.build(cfg)(module)
        else:
            _load_pretrained(module, **{key: value for key, value in cfg.items() if key != "type"})
        if hasattr(module, "_params_init_info"):
            update_init_info(module, f"loaded from {cfg.get('checkpoint', cfg.get('source'))}")


def _load_pretrained(
    module: nn.Module,
    checkpoint: str,
    prefix: str | None = None,
    map_location: str | torch.device = "cpu",
    min_matched: float = 0.5,
) -> None:
    theirs = state_dict_of(fetch_checkpoint(checkpoint, map_location), checkpoint)
    if prefix is not None:
        start = prefix.rstrip(".") + "."
        plain = {name.removeprefix("module."): tensor for name, tensor in theirs.items()}
        theirs = {name.removeprefix(start): tensor for name, tensor in plain.items() if name.startswith(start)}
    hint = f"is prefix={prefix!r} right? init_cfg=dict(…, min_matched=0) loads what there is"
    _load(module, adapt_state_dict(module, theirs), checkpoint, min_matched, hint)
