"""Initialization from published weights: ``init_cfg=dict(type='mmlisa.PublishedWeights', source='timm:…')``."""

from collections.abc import Mapping, Sequence
from typing import Any

from mmengine.logging import print_log
from mmengine.model import update_init_info
from torch import Tensor, nn

from mmlisa.checkpoints import below_prefix, load_state_dict, match_report
from mmlisa.errors import UserError
from mmlisa.models.feature_maps import backbone_class
from mmlisa.registry import WEIGHT_INITIALIZERS

from .matching import closest, fit, match
from .reading import read
from .renaming import find_network, recognise, rename_heads

_SAME = 0.9  # share of a backbone's entries; more than any related network has under the same names


@WEIGHT_INITIALIZERS.register_module()
class PublishedWeights:
    """Initialize a backbone with the published weights of its host or of a related network.

    Entries that match by name and shape are loaded, and position tables are interpolated. The log lists what was loaded, what
    keeps its initial values, and why. A backbone, or a model with one, loads a checkpoint of its own kind without conversion.
    From other weights, the backbone loads the matching entries, and necks and heads the layers of the same name and shape.

    Args:
        source: see :func:`mmlisa.conversion.read`.
        ema: True for the averaged weights of the file, False for the others; see :func:`mmlisa.conversion.read`.
        min_matched: smallest share of the backbone's parameters that the source must fill, from 0 to 1.

    Raises:
        UserError: an unknown source, or one that does not fit the backbone.
        ConnectionError: the weights cannot be downloaded.
    """

    def __init__(self, source: str, ema: bool | None = None, min_matched: float = 0.0) -> None:
        self.source, self.ema, self.min_matched = source, ema, min_matched

    def __call__(self, module: nn.Module) -> None:
        state = read(self.source, self.ema)
        backbone = getattr(module, "backbone", None)
        if hasattr(module, "_params_init_info"):  # MMEngine would initialize the parts after this
            for child in module.children():
                if not getattr(child, "is_init", True):
                    child.init_weights()
        weights = below_prefix(state, "backbone.")
        if backbone is None:
            weights = weights or state
            if match_report(module, weights)[0] >= _SAME:
                load_state_dict(module, weights, self.source, _SAME)
            else:
                self._load_backbone(module, weights)
        elif match_report(backbone, weights)[0] >= 0.5 or not find_network(weights or state, type(backbone)):
            load_state_dict(module, state, self.source)
        else:
            self._load_backbone(backbone, weights or state)
            _load_heads(module, rename_heads(state))

    def _load_backbone(self, backbone: nn.Module, state: Mapping[str, Tensor]) -> None:
        matched, name = match(state, backbone), type(backbone).__name__
        if matched.network.is_ours:
            matched.check_size(name, shapes=False)
        if not matched.state or matched.share < self.min_matched:
            raise UserError(f"source={self.source!r} does not fit {name}: {matched.report()}")
        backbone.load_state_dict(matched.state, strict=False)
        print_log(f"{name} starts from {self.source}: {matched.report()}", logger="current")
        if hasattr(backbone, "_params_init_info"):
            update_init_info(backbone, f"PublishedWeights: from {self.source}")


def _load_heads(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Load the layers of necks and heads that have the same name and shape, and log the others."""
    heads = {name: tensor for name, tensor in model.state_dict().items() if not name.startswith("backbone.")}
    matched, fresh = fit(heads, state)
    model.load_state_dict(matched, strict=False)
    lines = [f"heads: {len(matched)} of {len(heads)} tensors match"]
    print_log("\n".join([*lines, *(f"  fresh, {name}: {why}" for name, why in fresh.items())]), logger="current")


def convert_published(
    source: str | Mapping[str, Any], to: Sequence[str] | None = None, ema: bool | None = None, head: bool = False
) -> tuple[dict[str, Any], str]:
    """Convert published weights into a checkpoint.

    Args:
        source: see :func:`mmlisa.conversion.read`.
        to: name of the backbone and its arch; by default those that the source fills most.
        ema: see :func:`mmlisa.conversion.read`.
        head: convert a host's classifier with its head for mmpretrain's ``ImageClassifier``. The head of one of our networks
            itself is always converted.

    Returns:
        A checkpoint, with the backbone's weights under ``backbone.*``, the neck and heads of the file and the backbone's config
        under ``meta``, and a report.

    Raises:
        UserError: an unknown source, backbone or arch, no matching weights, or a whole network of another size.
    """
    whole = read(source, ema)
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
    if not matched.state:
        raise UserError(f"nothing of the weights fits {name}: {matched.report()}")
    if is_whole:
        matched.check_size(name)
    weights = {f"backbone.{name}": tensor.contiguous() for name, tensor in matched.state.items()}
    config = dict(type=f"mmlisa.{host.__name__}", arch=arch, **(host.classifier if is_classifier else {}))
    report = f"for {name} - {matched.report()}\n  with {len(heads)} tensors of necks and heads"
    return {"state_dict": weights | heads, "meta": {"backbone": config}}, report
