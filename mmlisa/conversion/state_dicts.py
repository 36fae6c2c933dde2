"""State dicts of third-party checkpoints."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mmlisa.checkpoints import below_prefix

EMA_KEYS = ("state_dict_ema", "model_ema")
_MMENGINES = "ema_state_dict"  # holds the weights without averaging: MMEngine exchanges the two when it saves


def unwrap(checkpoint: Mapping[str, Any], ema: bool = False) -> dict[str, Tensor]:
    """Return the weights of a checkpoint, without other entries and without the prefixes of parallel models.

    Half-precision weights are converted to single precision.

    Args:
        checkpoint: content of the file.
        ema: use the averaged weights: ``state_dict_ema``, ``model_ema``, or what MMEngine's ``EMAHook`` averaged.

    Raises:
        ValueError: the checkpoint has no weights, or no averaged weights.
    """
    keys = EMA_KEYS if ema and _MMENGINES not in checkpoint else ("model", "state_dict")
    state = next(
        (checkpoint[key] for key in keys if isinstance(checkpoint.get(key), Mapping)), None if ema else checkpoint
    )
    if state is None:
        raise ValueError(f"the file has no averaged weights {' or '.join(EMA_KEYS)}; it holds {sorted(checkpoint)[:8]}")
    tensors = OrderedDict(
        (str(name), tensor) for name, value in state.items() if (tensor := _as_tensor(value)) is not None
    )
    tensors._metadata = getattr(state, "_metadata", None)
    if not tensors:
        raise ValueError(f"the file holds no weights, but {sorted(map(str, checkpoint))[:8]}")
    for prefix in ("module.", "model."):
        if all(name.startswith(prefix) for name in tensors if name != "steps"):
            tensors = below_prefix(tensors, prefix)
    return tensors


def _as_tensor(value: Any) -> Tensor | None:
    """A tensor, an array, or a pair of a name and an array, as Paddle pickles its tensors; None for anything else."""
    if type(value) is tuple and len(value) == 2:
        value = value[1]
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        value = torch.from_numpy(value)
    if not isinstance(value, Tensor):
        return None
    return value.float() if value.dtype in (torch.float16, torch.bfloat16) else value
