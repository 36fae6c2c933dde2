"""Reading of published weights: files, addresses, and timm's models."""

import pickle
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from difflib import get_close_matches
from typing import Any
from zipfile import BadZipFile

import numpy as np
import timm
import torch
from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import HfHubHTTPError
from torch import Tensor

from mmlisa.checkpoints import (
    NUMPY,
    CheckpointError,
    averaged_entry,
    below_prefix,
    download,
    note_averages,
    read_checkpoint,
)
from mmlisa.errors import UserError

from .onnx_weights import read_onnx
from .renaming import known_networks

_MMENGINES = "ema_state_dict"  # holds the weights without averaging: MMEngine exchanges the two when it saves


def read(source: str | Mapping[str, Any], ema: bool | None = None) -> dict[str, Any]:
    """Return the weights of a source and its ``meta``, as ``{"state_dict": …, "meta": …}``.

    The weights have the names of the source, without the prefixes of parallel models.

    Half-precision weights are converted to single precision.

    Args:
        source: ``'timm:NAME'``, a model that timm downloads; a file or an address, see :func:`mmlisa.checkpoints.download`,
            also Paddle's ``.pdparams``, NumPy's ``.npz``, and LCNets or Hugging Face's ViTs in ``.onnx``; or the content of a
            file.
        ema: True for the averaged weights: ``state_dict_ema``, ``model_ema``, or what MMEngine's ``EMAHook`` averaged; False for
            the others; None for those that the file has as its ``state_dict``, which MMEngine's hook replaces by the average.
            The log says if other averaged weights are not taken.

    Raises:
        UserError: an unknown source, no weights, no averaged weights, or values that are not finite.
        OSError: the file cannot be read or downloaded.
    """
    content = source if isinstance(source, Mapping) else _read_content(str(source))
    averaged = averaged_entry(content)
    keys = [averaged] if ema else ["model", "state_dict"]
    if _MMENGINES in content:
        keys = [_MMENGINES] if ema is False else ["state_dict"]
    key = next((key for key in keys if isinstance(content.get(key), Mapping)), None)
    if ema and not key:
        raise UserError("ema=True: the file has no averaged weights such as state_dict_ema or model_ema")
    filename = source if isinstance(source, str) else "the file"
    if ema is None and key:
        note_averages(content, key, filename)
    weights = content[key] if key else content
    tensors = ((str(name), _as_tensor(value)) for name, value in weights.items())
    state = OrderedDict((name, tensor) for name, tensor in tensors if tensor is not None)
    if not state:
        raise UserError(f"the file holds no weights, but {sorted(map(str, content))[:8]}")
    state._metadata = getattr(weights, "_metadata", None)
    for prefix in ("module.", "model."):
        if all(name.startswith(prefix) for name in state if name != "steps"):
            state = below_prefix(state, prefix)
    for name, tensor in state.items():
        if not tensor.is_meta and not tensor.isfinite().all():
            raise CheckpointError(f"{name} of {filename} is not finite")
    return {"state_dict": state, "meta": content.get("meta")}


def known_sources() -> list[str]:
    """Return the ``timm:`` sources whose weights a backbone of this package can load."""
    starts = tuple(start for network in known_networks() for start in network.timm)
    return [f"timm:{name}" for name in timm.list_models(pretrained=True) if name.startswith(starts)]


def _as_tensor(value: Any) -> Tensor | None:
    """Convert a tensor, an array, or a pair of a name and an array, as Paddle pickles its tensors; None for anything else."""
    if type(value) is tuple and len(value) == 2:
        value = value[1]
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        value = torch.from_numpy(value)
    if not isinstance(value, Tensor):
        return None
    return value.float() if value.dtype in (torch.float16, torch.bfloat16) else value


class _ArrayUnpickler(pickle.Unpickler):
    """Reader of PaddlePaddle's pickles, which builds arrays and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("_codecs", "encode"):  # how protocol 2 writes bytes
            return lambda text, _: text.encode("latin-1")
        if f"{module}.{name}" not in NUMPY:
            raise pickle.UnpicklingError(f"{module}.{name} could run code")
        return NUMPY[f"{module}.{name}"]


def _read_content(source: str) -> Mapping[str, Any]:
    if source.startswith("timm:"):
        return _from_timm(source.removeprefix("timm:"))
    path = download(source)
    if path.suffix == ".onnx":
        return read_onnx(path)
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                return dict(archive)
        if path.suffix == ".pdparams":
            with path.open("rb") as file:
                return _ArrayUnpickler(file, encoding="latin1").load()
    except (ValueError, EOFError, BadZipFile, pickle.UnpicklingError) as error:
        raise CheckpointError(f"'{path}' is damaged or not a file of arrays: {error}") from error
    return read_checkpoint(path)


def _from_timm(name: str) -> dict[str, Tensor]:
    if not timm.is_model_pretrained(name):
        near = get_close_matches(f"timm:{name}", known_sources(), n=3, cutoff=0.4)
        raise UserError(f"source='timm:{name}': timm has no such weights; the closest are {', '.join(near) or 'none'}")
    stated = timm.models.get_pretrained_cfg(name)
    address = hf_hub_url(stated.hf_hub_id, "model.safetensors") if stated.hf_hub_id else stated.url
    try:
        if stated.hf_hub_id and not try_to_load_from_cache(stated.hf_hub_id, "model.safetensors"):
            _reach(address)
        return timm.create_model(name, pretrained=True).state_dict()
    except Exception as error:  # the hub's client raises a dozen types
        raise ConnectionError(
            f"source='timm:{name}' could not be downloaded ({type(error).__name__}). Bring the file {address} from a machine "
            "with a network, and give its path: source=FILE in init_cfg, --pretrained FILE of train, or --weights FILE of fit"
        ) from error


def _reach(address: str) -> None:
    """Ask the hub once. Without an internet connection, timm's download would ask for minutes."""
    with suppress(HfHubHTTPError):  # the hub answered, and timm looks for files of other names, too
        get_hf_file_metadata(address)
