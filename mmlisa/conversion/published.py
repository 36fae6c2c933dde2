"""Initialization from published weights: ``init_cfg=dict(type='mmlisa.PublishedWeights', source='timm:…')``."""

import socket
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import timm
from huggingface_hub import constants, try_to_load_from_cache
from mmengine.logging import print_log
from mmengine.model import update_init_info
from torch import Tensor, nn

from mmlisa.checkpoints import CheckpointError, below_prefix, download, load_state_dict, match_report, read_checkpoint
from mmlisa.models import backbones
from mmlisa.registry import WEIGHT_INITIALIZERS

from .addresses import how_to_download
from .arrays import read_npz
from .families import FAMILIES, Family, is_known, recognise
from .heads import head_weights
from .matching import NO_COUNTERPART, Carried, carry_over, closest_arch, different_shapes
from .openmmlab import authors_names
from .paddle import convert_picodet, is_picodet
from .state_dicts import unwrap

_SAME = 0.9  # share of a backbone's entries; more than any related network has under the same names


@WEIGHT_INITIALIZERS.register_module()
class PublishedWeights:
    """Initialize a backbone with the published weights of its host or of a related network.

    Entries that match by name and shape are loaded, and position tables are interpolated. The log lists what was loaded, what
    keeps its initial values, and why. A backbone, or a model with one, loads a checkpoint of its own kind without conversion.
    From other weights, the backbone loads the matching entries, and necks and heads the layers of the same name and shape.

    Args:
        source: ``'timm:NAME'``, a model that timm has weights for, which it downloads into its own cache; or a file or an
            address, see :func:`mmlisa.checkpoints.download`. Paddle's ``.pdparams`` and NumPy's ``.npz`` are read, too.
        ema: use the averaged weights of the file.
        min_carried: smallest share of the backbone's parameters that the source must fill, from 0 to 1.

    Raises:
        ValueError: an unknown source, or one that does not fit the backbone (the message names the closest known sources); or
            ``min_carried`` outside of 0 to 1.
        ConnectionError: the weights cannot be downloaded.
    """

    def __init__(self, source: str, ema: bool = False, min_carried: float = 0.0) -> None:
        if not 0 <= min_carried <= 1:
            raise ValueError(f"min_carried={min_carried!r} is not a share; it must be from 0 to 1")
        self.source, self.ema, self.min_carried = source, ema, min_carried

    def __call__(self, module: nn.Module) -> None:
        state = read_source(self.source, self.ema)
        backbone = getattr(module, "backbone", None)
        if hasattr(module, "_params_init_info"):  # MMEngine would initialize the parts after this
            for part in module.children():
                if not getattr(part, "is_init", True):
                    part.init_weights()
        if backbone is None:
            own = below_prefix(state, "backbone.") or state
            if match_report(module, own)[0] >= _SAME:
                load_state_dict(module, own, self.source, _SAME)
            else:
                self._load_backbone(module, state)
        elif _is_own(backbone, state) or not is_known(backbone_weights(state)):
            load_state_dict(module, state, self.source)
        else:
            self._load_backbone(backbone, state)
            _load_heads(module, state)

    def _load_backbone(self, backbone: nn.Module, state: dict[str, Tensor]) -> None:
        state = backbone_weights(state)
        family = recognise(state)
        carried = carry_over(backbone, state, family)
        if family.classifier is not None:
            carried.check_blocks(self.source, type(backbone).__name__)
        if not carried.state_dict or carried.share < self.min_carried:
            raise ValueError(f"source={self.source!r} does not fit {type(backbone).__name__}: {carried.report()}")
        backbone.load_state_dict(carried.state_dict, strict=False)
        print_log(f"{type(backbone).__name__} starts from {self.source}: {carried.report()}", logger="current")
        if hasattr(backbone, "_params_init_info"):
            update_init_info(backbone, f"PublishedWeights: from {self.source}")


def _is_own(backbone: nn.Module, state: dict[str, Tensor]) -> bool:
    """Whether a file has most of the backbone under our names, with their prefix."""
    return match_report(backbone, below_prefix(state, "backbone."))[0] >= 0.5


def _load_heads(model: nn.Module, state: dict[str, Tensor]) -> None:
    """Load necks and heads, whose names are the same in the libraries, and a classifier's head under our name."""
    theirs = {name: tensor for name, tensor in state.items() if not name.startswith("backbone.")} | head_weights(state)
    ours = {name: tensor for name, tensor in model.state_dict().items() if not name.startswith("backbone.")}
    fitting = {name: theirs[name] for name in ours if name in theirs and theirs[name].shape == ours[name].shape}
    model.load_state_dict(fitting, strict=False)
    fresh = [
        f"{name}: {different_shapes(tensor, theirs[name]) if name in theirs else NO_COUNTERPART}"
        for name, tensor in ours.items()
        if name not in fitting
    ]
    lines = [f"heads: {len(fitting)} of {len(ours)} tensors carried over", *(f"  fresh, {line}" for line in fresh)]
    print_log("\n".join(lines), logger="current")


def read_source(source: str, ema: bool = False) -> dict[str, Tensor]:
    """Return the weights of a source under the names they have there.

    Raises:
        ValueError, ConnectionError: see :class:`PublishedWeights`.
    """
    is_timms = source.startswith("timm:")
    state = _from_timm(source.removeprefix("timm:")) if is_timms else unwrap(_from_file(source), ema)
    for name, tensor in state.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise CheckpointError(f"{source}: {name} holds values that are not finite")
    return state


def backbone_weights(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the backbone's weights of a detector or classifier, without their prefix and under their authors' names."""
    return authors_names(below_prefix(state, "backbone.") or state)


def known_sources() -> list[str]:
    """Return the ``timm:`` sources whose family a backbone of this package can load."""
    starts = tuple(start for family in FAMILIES for start in family.timm)
    return [f"timm:{name}" for name in timm.list_models(pretrained=True) if name.startswith(starts)]


def _check_connection(name: str) -> None:
    """Try once to reach the hub, because its client tries for minutes. Cached weights and proxies need no attempt.

    Raises:
        ConnectionError: the hub cannot be reached.
    """
    repository = timm.models.get_pretrained_cfg(name).hf_hub_id
    files = ("model.safetensors", "pytorch_model.bin")
    cached = repository and any(isinstance(try_to_load_from_cache(repository, file), str) for file in files)
    address = urlsplit(constants.ENDPOINT)
    if cached or getproxies().get(address.scheme):
        return
    try:
        socket.create_connection((address.hostname, address.port or 443), timeout=10).close()
    except OSError as error:
        raise ConnectionError(
            f"source='timm:{name}': {address.hostname} cannot be reached ({error}). Without a network, "
            "download the weights elsewhere and give source=FILE"
        ) from error


def _from_file(source: str) -> Mapping[str, Any]:
    try:
        path = download(source)
        return read_npz(path) if path.suffix == ".npz" else read_checkpoint(path)
    except (FileNotFoundError, ConnectionError) as error:
        if hint := how_to_download(source):
            raise type(error)(f"{error}. {hint}") from error
        raise


def _from_timm(name: str) -> dict[str, Tensor]:
    near = get_close_matches(f"timm:{name}", known_sources(), n=3, cutoff=0.4)
    if timm.is_model_pretrained(name):
        _check_connection(name)
    if not timm.is_model_pretrained(name):
        raise ValueError(f"source='timm:{name}': timm has no such weights; the closest are {', '.join(near) or 'none'}")
    try:
        model = timm.create_model(name, pretrained=True)
    # The hub's client raises a dozen kinds of errors.
    except Exception as error:
        reason = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"
        raise ConnectionError(
            f"source='timm:{name}': its weights could not be loaded ({reason}). "
            "Without a network, download them elsewhere and give source=FILE"
        ) from error
    return {key: tensor.float() if tensor.is_floating_point() else tensor for key, tensor in model.state_dict().items()}


def convert_published(source: str, to: Sequence[str] | None = None, ema: bool = False) -> tuple[dict[str, Any], str]:
    """Convert a source into a checkpoint.

    Args:
        source: see :class:`PublishedWeights`; also a complete PicoDet from PaddleDetection.
        to: name of the backbone and its arch; by default those that the source fills most.
        ema: use the averaged weights.

    Returns:
        A checkpoint and a report. The checkpoint has the backbone's weights under ``backbone.*`` and the backbone's config
        under ``meta``. It also has the neck and heads of a detector or segmentor, and the head of a network's own classifier.

    Raises:
        ValueError: an unknown source, backbone or arch, no matching weights, or a network's own weights of another size.
    """
    whole = read_source(source, ema)
    if is_picodet(whole):
        converted, dropped = convert_picodet(whole)
        unused = f"; without a place here, {len(dropped)}: {', '.join(dropped[:4])}" if dropped else ""
        report = f"PicoDet, Paddle's names: {len(whole) - len(dropped)} of {len(whole)} tensors converted{unused}"
        return {"state_dict": converted, "meta": {}}, report
    state = backbone_weights(whole)
    family, head = recognise(state), {}
    options = {}
    if family.classifier is not None and "head.weight" in state:
        head, options = head_weights(state), family.classifier
    if to is None:
        kind, arch, carried = _closest_backbone(state, family, options)
    else:
        (kind, arch), known = to, sorted({name for family in FAMILIES for name in family.rules})
        if kind not in known:
            raise ValueError(f"--to {kind}: no weights can be converted for it; it must be one of {', '.join(known)}")
        carried = carry_over(getattr(backbones, kind)(arch, **options), state, family)
    if not carried.state_dict:
        raise ValueError(f"nothing of {source} fits {kind} {arch!r}: {carried.report()}")
    if family.classifier is not None:
        carried.check_blocks(source, f"{kind} {arch!r}")
    weights = {f"backbone.{name}": tensor.contiguous() for name, tensor in carried.state_dict.items()}
    # Necks and heads are the libraries' own, so their names need no conversion.
    rest = {name: tensor for name, tensor in whole.items() if not name.startswith("backbone.")}
    rest = rest if len(rest) < len(whole) else head
    config = dict(type=f"mmlisa.{kind}", arch=arch, **options)
    report = f"for {kind} {arch!r} - {carried.report()}" + (f"\n  with {len(rest)} tensors of heads" if rest else "")
    return {"state_dict": weights | rest, "meta": {"backbone": config}}, report


def _closest_backbone(state: dict[str, Tensor], family: Family, options: dict[str, Any]) -> tuple[str, str, Carried]:
    """Return the backbone and arch that the weights fill most; among equals the first, which is the family's own."""
    found = [(kind, *closest_arch(kind, state, family, options)) for kind in family.rules]
    return max(found, key=lambda one: (round(one[2].share, 6), -len(one[2].dropped) - len(one[2].unused)))
