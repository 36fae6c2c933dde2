"""Conversion of official FLatten weights and of host weights to complete mmpretrain classifiers."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from .families import recognise
from .heads import head_weights
from .matching import NO_COUNTERPART, block_of, closest_arch
from .state_dicts import unwrap


@dataclass(frozen=True)
class Target:
    """Backbones that a conversion can produce, with their classifier.

    Attributes:
        backbones: names of the backbones.
        own: pattern of the entries that the host lacks; they keep their initial values.
        head: entries of the classifier's head.
        options: options of the backbone in a classifier.
    """

    backbones: tuple[str, ...]
    own: str
    head: tuple[str, ...]
    options: dict[str, Any]


_HIDDEN = tuple(f"head.{layer}.{kind}" for layer in ("pre_norm", "fc1", "norm", "fc2") for kind in ("weight", "bias"))
_LINEAR = ("head.fc.weight", "head.fc.bias")
_FLATTEN_OWN = r"\.attn\.(dwc\.\w+|scale|positional_encoding)$"
_FLATTEN = Target(
    ("FLattenSwin", "FLattenPVT", "FLattenPVTv2", "FLattenCSwin"), _FLATTEN_OWN, _LINEAR, dict(out_indices=(3,))
)
# By the name that stands before SRC and DST on the command line.
CLASSIFIERS: dict[str, tuple[Target, ...]] = {
    "flatten": (_FLATTEN, replace(_FLATTEN, backbones=("FLattenDeiT",), options=dict(out_type="cls_token"))),
    "caformer": (Target(("iViT",), r"\.mix_\w+$", _HIDDEN, dict(out_indices=(3,), output_norm=False)),),
}


@dataclass(frozen=True)
class Conversion:
    """A converted checkpoint, with the result for every key.

    Attributes:
        backbone: config of the backbone.
        state_dict: weights of an mmpretrain ``ImageClassifier``: ``backbone.*`` and ``head.*``.
        official: whether these are weights of the backbone itself, not of its host.
        dropped: keys of the file without a counterpart in the model.
        untrained: keys of the backbone that the host's file lacks; ``state_dict`` lacks them, too.
        missing: keys of the classifier's head that the file lacks.
    """

    backbone: dict[str, Any]
    state_dict: dict[str, Tensor]
    official: bool
    dropped: tuple[str, ...]
    untrained: tuple[str, ...]
    missing: tuple[str, ...]

    def report(self) -> str:
        """Return a summary as text."""
        name = f"{self.backbone['type']} {self.backbone['arch']!r}"
        source = f"official weights of {name}" if self.official else f"weights of the host of {name}, to fine-tune from"
        lines = [source, f"matched: {len(self.state_dict)} keys"]
        for label in ("dropped", "untrained", "missing"):
            keys = getattr(self, label)
            shown = ", ".join(keys[:4]) + (", …" if len(keys) > 4 else "")
            lines.append(f"{label}: {len(keys)} keys" + (f" ({shown})" if keys else ""))
        return "\n".join([*lines, f"backbone={self.backbone}"])


def convert_classifier(checkpoint: Mapping[str, Any], kind: str, *, ema: bool = False) -> Conversion:
    """Convert a complete classifier: official FLatten, or a host of FLatten (``'flatten'``) or of iViT (``'caformer'``).

    Args:
        checkpoint: content of the file: the state dict itself or ``{'model' | 'state_dict': state_dict}``.
        kind: a name of :data:`CLASSIFIERS`.
        ema: use the averaged weights.

    Returns:
        The conversion. Its classifier has ``Conversion.backbone``, global average pooling (DeiT uses its class token instead)
        and a linear head; iViT's head is ``MlpClsHead`` with ``pre_norm=True, activation='SquaredReLU'``.

    Raises:
        ValueError: the family or size is unknown, or an entry of the backbone is missing or has another shape.
    """
    theirs = unwrap(checkpoint, ema)
    family = recognise(theirs)
    fitting = [(target, name) for target in CLASSIFIERS[kind] for name in target.backbones if name in family.rules]
    if not fitting:
        known = ", ".join(name for target in CLASSIFIERS[kind] for name in target.backbones)
        raise ValueError(f"{family.name} weights have no place in {known}; they fit {', '.join(family.rules)}")
    target, name = fitting[0]
    arch, carried = closest_arch(name, theirs, family, target.options)
    config = {"type": f"mmlisa.{name}", "arch": arch, **target.options}
    own = [entry for entry in carried.fresh if re.search(target.own, entry)]
    official, blocks = not own, {block_of(entry) for entry in carried.state_dict}
    lost = {entry: why for entry, why in carried.fresh.items() if entry not in own or why != NO_COUNTERPART}
    extra = [old for new, old in carried.unused.items() if (block := block_of(new)) and block not in blocks]
    if lost or extra:
        reasons = [f"{entry}: {why}" for entry, why in lost.items()] + [
            f"{entry}: no such block here" for entry in extra
        ]
        raise ValueError(
            f"weights of another size than mmlisa.{name} {arch!r}, the closest: {len(lost)} of its "
            f"{len(carried.state_dict) + len(carried.fresh)} entries are not in the file, {len(extra)} of the file have no "
            f"place: {'; '.join(reasons[:5])}"
        )
    head = {entry: tensor for entry, tensor in head_weights(theirs).items() if entry in target.head}
    state_dict = {f"backbone.{entry}": tensor for entry, tensor in carried.state_dict.items()} | head
    unused = tuple(entry for entry in carried.unused.values() if not entry.startswith("head."))
    missing = tuple(entry for entry in target.head if entry not in head)
    return Conversion(config, state_dict, official, (*carried.dropped, *unused), tuple(own), missing)
