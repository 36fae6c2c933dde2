"""Initialization from published weights: ``init_cfg=dict(type='mmlisa.PublishedWeights', source='timm:…')``."""

from collections.abc import Mapping, Sequence
from typing import Any

from mmengine.logging import print_log
from mmengine.model import update_init_info
from torch import Tensor, nn

from mmlisa.checkpoints import below_prefix, load_state_dict, match_report
from mmlisa.models import backbones
from mmlisa.registry import WEIGHT_INITIALIZERS

from .families import is_known, recognise
from .matching import NO_COUNTERPART, closest, different_shapes, match
from .reading import read
from .renaming import rename, rename_heads

_SAME = 0.9  # share of a backbone's entries; more than any related network has under the same names
_LAST_MAP, _LAST_NORM = dict(out_indices=(3,)), dict(out_indices=(3,), output_norm=False)
# Options of the backbones in classifiers.
_CLASSIFIERS = {
    **dict.fromkeys(("FLattenSwin", "FLattenPVT", "FLattenPVTv2", "FLattenCSwin"), _LAST_MAP),
    **dict.fromkeys(("MILA", "HViT3", "iViT"), _LAST_NORM),
    "FLattenDeiT": dict(out_type="cls_token"),
}


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
        ValueError: an unknown source, or one that does not fit the backbone.
        ConnectionError: the weights cannot be downloaded.
    """

    def __init__(self, source: str, ema: bool | None = None, min_matched: float = 0.0) -> None:
        self.source, self.ema, self.min_matched = source, ema, min_matched

    def __call__(self, module: nn.Module) -> None:
        state = read(self.source, self.ema)
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
                self._load_backbone(module, own)
            return
        theirs = below_prefix(state, "backbone.")
        if match_report(backbone, theirs)[0] >= 0.5 or not is_known(theirs or state):
            load_state_dict(module, state, self.source)
        else:
            self._load_backbone(backbone, theirs or state)
            _load_heads(module, rename_heads(state))

    def _load_backbone(self, backbone: nn.Module, state: Mapping[str, Tensor]) -> None:
        family, name = recognise(state), type(backbone).__name__
        matched = match(rename(state, family, name), backbone)
        if family.is_own:
            matched.check_blocks(name)
        if not matched.state or matched.share < self.min_matched:
            raise ValueError(f"source={self.source!r} does not fit {name}: {matched.report()}")
        backbone.load_state_dict(matched.state, strict=False)
        print_log(f"{name} starts from {self.source}: {matched.report()}", logger="current")
        if hasattr(backbone, "_params_init_info"):
            update_init_info(backbone, f"PublishedWeights: from {self.source}")


def _load_heads(model: nn.Module, theirs: Mapping[str, Tensor]) -> None:
    """Load the layers of necks and heads that have the same name and shape, and log the others."""
    ours = {name: tensor for name, tensor in model.state_dict().items() if not name.startswith("backbone.")}
    matched = {name: theirs[name] for name in ours if name in theirs and theirs[name].shape == ours[name].shape}
    model.load_state_dict(matched, strict=False)
    fresh = [
        f"{name}: {different_shapes(tensor, theirs[name]) if name in theirs else NO_COUNTERPART}"
        for name, tensor in ours.items()
        if name not in matched
    ]
    lines = [f"heads: {len(matched)} of {len(ours)} tensors match", *(f"  fresh, {line}" for line in fresh)]
    print_log("\n".join(lines), logger="current")


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
        A checkpoint and a report. The checkpoint has the backbone's weights under ``backbone.*``, the neck and heads of the
        file, and the backbone's config under ``meta``.

    Raises:
        ValueError: an unknown source, backbone or arch, no matching weights, or a whole network of another size.
    """
    whole = read(source, ema)
    state = below_prefix(whole, "backbone.") or whole
    family = recognise(state)
    is_whole = head or family.is_own
    heads = rename_heads(whole) if is_whole or len(state) < len(whole) else {}
    options = _CLASSIFIERS if len(state) == len(whole) and heads else {}
    if to is None:
        kind, arch, matched = closest(state, family, options)
    else:
        (kind, arch), renamed = to, rename(state, family, to[0])
        matched = match(renamed, getattr(backbones, kind)(arch, **options.get(kind, {})))
    if not matched.state:
        raise ValueError(f"nothing of the weights fits {kind} {arch!r}: {matched.report()}")
    if is_whole:
        matched.check_blocks(f"{kind} {arch!r}")
        if matched.reshaped:
            raise ValueError(f"the weights are of another size than {kind} {arch!r}: {matched.report()}")
    weights = {f"backbone.{name}": tensor.contiguous() for name, tensor in matched.state.items()}
    config = dict(type=f"mmlisa.{kind}", arch=arch, **options.get(kind, {}))
    report = f"for {kind} {arch!r} - {matched.report()}\n  with {len(heads)} tensors of necks and heads"
    return {"state_dict": weights | heads, "meta": {"backbone": config}}, report
