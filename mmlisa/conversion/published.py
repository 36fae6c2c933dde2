"""Initialization from published weights: ``init_cfg=dict(type='mmlisa.PublishedWeights', source='timm:…')``."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from mmengine.logging import print_log
from mmengine.model import update_init_info
from torch import Tensor, nn

from mmlisa.checkpoints import below_prefix, fresh_in_a_start, load_checkpoint
from mmlisa.errors import UserError
from mmlisa.models.feature_maps import backbone_class
from mmlisa.registry import WEIGHT_INITIALIZERS

from .matching import NO_COUNTERPART, VALUE_ONLY, closest, fit, match
from .reading import read
from .renaming import find_network, recognise, rename_heads

MIN_MATCHED = 0.1  # smallest share of a backbone's parameters that makes another network's weights a start
_SAME = 0.9  # share of a backbone's names, without indices; more than any related network has


@WEIGHT_INITIALIZERS.register_module()
class PublishedWeights:
    """Initialize a backbone with the published weights of its host or of a related network.

    Entries that match by name and shape are loaded, and position tables are interpolated. The log lists what was loaded, what
    keeps its initial values, and why. A backbone, or a model with one, loads a checkpoint of its own kind without conversion.
    From other weights, the backbone loads the matching entries, and necks and heads the layers of the same name and shape.

    Args:
        source: see :func:`mmlisa.conversion.read`.
        ema: True for the averaged weights of the file, False for the others; see :func:`mmlisa.conversion.read`.
        min_matched: smallest share of the backbone's parameters that another network must fill, from 0 to 1. Below a half, the
            log warns.
        may_differ: parts, entries or options in which a checkpoint of the backbone's own kind may differ; see
            :func:`mmlisa.checkpoints.judge`.
        resample_patches: resample a patch embedding of another patch size, such as DINOv2's 14 for a backbone of 16; see
            :func:`mmlisa.conversion.match`.

    Raises:
        UserError: an unknown source, or one that does not fit the backbone.
        ConnectionError: the weights cannot be downloaded.
    """

    def __init__(
        self,
        source: str,
        ema: bool | None = None,
        min_matched: float = MIN_MATCHED,
        may_differ: Sequence[str] = (),
        resample_patches: bool = False,
    ) -> None:
        self.source, self.ema, self.min_matched, self.may_differ = source, ema, min_matched, may_differ
        self.resample_patches = resample_patches

    def __call__(self, module: nn.Module) -> None:
        content = read(self.source, self.ema)
        state, meta = content["state_dict"], content["meta"]
        backbone = getattr(module, "backbone", None)
        if hasattr(module, "_params_init_info"):  # MMEngine would initialize the parts after this
            for child in module.children():
                if not getattr(child, "is_init", True):
                    child.init_weights()
        weights = below_prefix(state, "backbone.")
        if backbone is None:
            weights = weights or state
            if _is_own(module, weights, meta):
                self._load_own(module, {"state_dict": weights, "meta": meta})
            else:
                self._load_backbone(module, weights)
        elif _is_own(backbone, weights, meta) or not find_network(weights or state, type(backbone)):
            self._load_own(module, content)
        else:
            self._load_backbone(backbone, weights or state)
            _load_heads(module, rename_heads(state))

    def _load_own(self, module: nn.Module, content: Mapping[str, Any]) -> None:
        load_checkpoint(module, content, self.source, [*self.may_differ, *fresh_in_a_start(module, content)])

    def _load_backbone(self, backbone: nn.Module, state: Mapping[str, Tensor]) -> None:
        matched, name = match(state, backbone, self.resample_patches), type(backbone).__name__
        if matched.network.is_ours:
            matched.check_size(name, shapes=False)
        matched.check_share(self.source, name, self.min_matched)
        backbone.load_state_dict(matched.state, strict=False)
        print_log(f"{name} starts from {self.source}: {matched.report()}", logger="current")
        if hasattr(backbone, "_params_init_info"):
            update_init_info(backbone, f"PublishedWeights: from {self.source}")


def _is_own(backbone: nn.Module, state: Mapping[str, Tensor], meta: Any) -> bool:
    """Return whether a file holds a backbone of the same class, of whatever size, under the names of this package."""
    stated = meta.get("backbone") if isinstance(meta, Mapping) else None
    if isinstance(stated, Mapping):
        return str(stated.get("type")).removeprefix("mmlisa.") == type(backbone).__name__
    ours = _without_indices(backbone.state_dict())
    theirs = _without_indices(state)
    return len(ours & theirs) >= _SAME * len(ours)


def _without_indices(names: Iterable[str]) -> set[str]:
    return {re.sub(r"\d+", "*", name) for name in names}


def _load_heads(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Load the layers of necks and heads that have the same name and shape, and log the others."""
    heads = {name: tensor for name, tensor in model.state_dict().items() if not name.startswith("backbone.")}
    matched, fresh = fit(heads, state)
    model.load_state_dict(matched, strict=False)
    lines = [f"heads: {len(matched)} of {len(heads)} tensors match"]
    print_log("\n".join([*lines, *(f"  fresh, {name}: {why}" for name, why in fresh.items())]), logger="current")


def convert_published(
    source: str | Mapping[str, Any],
    to: Sequence[str] | None = None,
    ema: bool | None = None,
    head: bool = False,
    min_matched: float = MIN_MATCHED,
) -> tuple[dict[str, Any], str]:
    """Convert published weights into a checkpoint.

    Args:
        source: see :func:`mmlisa.conversion.read`.
        to: name of the backbone and its arch; by default those that the source fills most.
        ema: see :func:`mmlisa.conversion.read`.
        head: convert a host's classifier with its head for mmpretrain's ``ImageClassifier``. The head of one of our networks
            itself is always converted.
        min_matched: see :class:`PublishedWeights`.

    Returns:
        A checkpoint, with the backbone's weights under ``backbone.*``, the neck and heads of the file, in ``meta`` the settings
        of the backbone and the entries that the file lacks (``fresh``), and a report.

    Raises:
        UserError: an unknown source, backbone or arch, no matching weights, or a whole network of another size.
    """
    whole = read(source, ema)["state_dict"]
    state = below_prefix(whole, "backbone.") or whole
    network = recognise(state)
    is_whole = head or network.is_ours
    heads = rename_heads(whole) if is_whole or len(state) < len(whole) else {}
    is_classifier = len(state) == len(whole) and bool(heads)
    if head and not heads:
        raise UserError("head=True: the file has no head that a classifier of mmpretrain takes")
    if to is None:
        host, arch, matched = closest(state, is_classifier)
    else:
        host, arch = backbone_class(to[0]), to[1]
        matched = match(state, host(arch, **(host.classifier if is_classifier else {})))
    name = f"{host.__name__} {arch!r}"
    matched.check_share(source if isinstance(source, str) else "the file", name, min_matched)
    if is_whole:
        matched.check_size(name)
    weights = {f"backbone.{name}": tensor.contiguous() for name, tensor in matched.state.items()}
    with torch.device("meta"):
        settings = host(arch).settings()
    fresh = [f"backbone.{name}" for name, why in matched.fresh.items() if why in (NO_COUNTERPART, VALUE_ONLY)]
    report = f"for {name} - {matched.report()}\n  with {len(heads)} tensors of necks and heads"
    return {"state_dict": weights | heads, "meta": {"backbone": settings, "fresh": fresh}}, report
