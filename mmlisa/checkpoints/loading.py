"""Reading checkpoint files without running code from them, and saying how well they fit a model."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch
from mmengine.logging import HistoryBuffer, print_log
from mmengine.runner.checkpoint import CheckpointLoader, get_torch_safe_globals
from torch import Tensor, nn


def load_checkpoint(filename: str | Path, map_location: str | torch.device | Callable | None = "cpu") -> dict[str, Any]:
    """Reads a checkpoint file: tensors, plain containers, what MMEngine and training scripts put beside them, nothing executable.

    Raises:
        FileNotFoundError: no such file.
        ValueError: truncated or not a checkpoint, or a pickle that would run code.
    """
    path = Path(filename).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"checkpoint {path} does not exist")
    try:
        with torch.serialization.safe_globals(_safe_globals()):
            checkpoint = torch.load(path, map_location=map_location, weights_only=True)
    except UnpicklingError as error:
        reason = str(error).split("WeightsUnpickler error:")[-1].strip().splitlines()[0]
        raise ValueError(
            f"checkpoint {path} holds more than weights and could run code when loaded ({reason}); it is refused. "
            "Save it again as a plain state dict from where it is trusted"
        ) from error
    except (RuntimeError, EOFError, OSError) as error:
        raise ValueError(
            f"checkpoint {path} is truncated or no checkpoint ({path.stat().st_size} bytes): {error}"
        ) from error
    if not isinstance(checkpoint, Mapping):
        raise ValueError(f"checkpoint {path} holds a {type(checkpoint).__name__}; a dict of tensors was expected")
    return checkpoint


def _safe_globals() -> list:
    """MMEngine's list, whose bare ``getattr`` would lead to any object, narrowed to what its histories need, and what training
    scripts leave beside the weights: their options and numpy's numbers, of any type and under the names of numpy 1 and 2."""
    numpy_scalar = np.float64(0).__reduce__()[0]
    return [
        *(entry for entry in get_torch_safe_globals() if entry is not getattr),
        (_history_statistic, "builtins.getattr"),
        *((_Options, name) for name in ("argparse.Namespace", "yacs.config.CfgNode")),
        *((numpy_scalar, f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")),
        *{type(np.dtype(code)) for code in "?" + np.typecodes["AllInteger"] + np.typecodes["AllFloat"]},
    ]


class _Options:
    """Stands in for the classes in which training scripts keep their options: they come out as plain dicts."""

    def __new__(cls, *_: Any) -> OrderedDict:
        return OrderedDict()


def _history_statistic(owner: type, name: str) -> Callable:
    """The ``getattr`` that unpickling a ``HistoryBuffer`` calls for its statistics methods."""
    if owner is not HistoryBuffer or name.startswith("_"):
        raise UnpicklingError(f"getattr({owner}, {name!r})")
    return getattr(owner, name)


def use_safe_loader() -> None:
    """Makes every load of a local file in this process, MMEngine's own included, go through :func:`load_checkpoint`.

    MMEngine falls back to an unsafe pickle load with a warning; with this it is an error.
    """

    def load_from_local(filename: str, map_location: Any = None) -> dict[str, Any]:
        return load_checkpoint(filename, map_location)

    CheckpointLoader.register_scheme(prefixes="", loader=load_from_local, force=True)


def adapt_state_dict(model: nn.Module, state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A copy without a data-parallel wrapper's prefix, what depends on the grid resampled by the modules that load it."""
    adapted = {name.removeprefix("module."): tensor for name, tensor in state_dict.items()}
    for name, module in model.named_modules():
        if hasattr(module, "adapt_state_dict"):
            module.adapt_state_dict(adapted, f"{name}." if name else "")
    return adapted


def match_report(model: nn.Module, state_dict: Mapping[str, Tensor]) -> tuple[float, str]:
    """The part of the model's entries that ``state_dict`` holds in a shape that fits, and a line that says so."""
    ours = model.state_dict()
    theirs = adapt_state_dict(model, state_dict)
    matched = [name for name in ours if name in theirs and theirs[name].shape == ours[name].shape]
    missing = [name for name in ours if name not in theirs]
    reshaped = [name for name in ours if name in theirs and theirs[name].shape != ours[name].shape]
    unexpected = [name for name in theirs if name not in ours]
    line = f"{len(matched)} of {len(ours)} entries match"
    for label, names in (("missing", missing), ("of another shape", reshaped), ("not in the model", unexpected)):
        if names:
            line += f", {len(names)} {label} ({', '.join(names[:3])}{', …' if len(names) > 3 else ''})"
    return len(matched) / max(len(ours), 1), line


def load_weights(model: nn.Module, filename: str | Path, min_matched: float = 0.9) -> dict[str, Any]:
    """Loads a checkpoint's weights into ``model`` and returns the whole checkpoint.

    Raises:
        ValueError: less than the share ``min_matched`` of the model's entries is in the file.
    """
    checkpoint = load_checkpoint(filename)
    theirs = adapt_state_dict(model, checkpoint.get("state_dict", checkpoint))
    share, line = match_report(model, theirs)
    check_share(share, line, str(filename), min_matched)
    ours = model.state_dict()
    model.load_state_dict({n: t for n, t in theirs.items() if n in ours and t.shape == ours[n].shape}, strict=False)
    return checkpoint


def check_share(share: float, line: str, filename: str, min_matched: float) -> None:
    """Logs the report of :func:`match_report`, and refuses a checkpoint below the threshold with ValueError."""
    if share < min_matched:
        raise ValueError(
            f"checkpoint {filename} is of another model: {line}. At least {min_matched:.0%} must match; "
            "--min-matched changes that"
        )
    print_log(f"{filename}: {line}", logger="current")


def latest_checkpoint(work_dir: str | Path) -> str | None:
    """The newest checkpoint of ``work_dir`` that can be read whole; one cut short by a crash is passed over."""
    paths = sorted(Path(work_dir).glob("*.pth"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in paths:
        try:
            checkpoint = load_checkpoint(path)
        except ValueError as error:
            print_log(f"passed over when resuming: {error}", logger="current", level=30)
            continue
        if "optimizer" in checkpoint:
            return str(path)
    return None
