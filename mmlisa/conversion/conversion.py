"""What converters of published weights share."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

# Their name -> ours, the first pattern that fits; None: dropped. What no pattern fits keeps its name.
Rules = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True)
class Conversion:
    """A converted checkpoint and what became of every key.

    Attributes:
        backbone: config of the backbone it is for.
        state_dict: of an mmpretrain ``ImageClassifier``: ``backbone.*`` and ``head.*``.
        official: weights of the backbone itself, and not only of its host.
        dropped: keys of the file that have no place in the model.
        untrained: keys of the backbone that the file, being the host's, lacks; they are not in ``state_dict`` either.
        missing: keys of the classifier's head that the file lacks.
    """

    backbone: dict[str, Any]
    state_dict: dict[str, Tensor]
    official: bool
    dropped: tuple[str, ...]
    untrained: tuple[str, ...]
    missing: tuple[str, ...]

    def report(self) -> str:
        """What was found, for people."""
        name = f"{self.backbone['type']} {self.backbone['arch']!r}"
        source = f"official weights of {name}" if self.official else f"weights of the host of {name}, to fine-tune from"
        lines = [source, f"matched: {len(self.state_dict)} keys"]
        for label in ("dropped", "untrained", "missing"):
            keys = getattr(self, label)
            shown = ", ".join(keys[:4]) + (", …" if len(keys) > 4 else "")
            lines.append(f"{label}: {len(keys)} keys" + (f" ({shown})" if keys else ""))
        return "\n".join([*lines, f"backbone={self.backbone}"])


def unwrap(checkpoint: Mapping[str, Any], ema: bool) -> dict[str, Tensor]:
    """The state dict, without the prefix of a parallel wrapper."""
    wrapped = [key for key in checkpoint if isinstance(checkpoint[key], Mapping)]
    if ema:
        if "state_dict_ema" not in wrapped:
            raise ValueError(f"the file has no averaged weights 'state_dict_ema'; it holds {sorted(checkpoint)[:8]}")
        state = checkpoint["state_dict_ema"]
    else:
        state = next((checkpoint[key] for key in ("model", "state_dict") if key in wrapped), checkpoint)
    return {name.removeprefix("module."): tensor for name, tensor in state.items() if isinstance(tensor, Tensor)}


def apply_rules(rules: Rules, name: str) -> str | None:
    """The new name by the first rule that fits; ``{1+1}`` in it is a sum."""
    for pattern, replacement in rules:
        if re.search(pattern, name):
            if replacement is None:
                return None
            new = re.sub(pattern, replacement, name)
            return re.sub(r"\{(\d+)([+-]\d+)\}", lambda match: str(int(match[1]) + int(match[2])), new)
    return name
