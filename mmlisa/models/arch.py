"""What users write about a network: the arch, by name or as a dict, and the image size."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Annotated, Any, Optional

from mmlisa.arguments import Positive, Size, check, fits, length

# Token mixers by the letter that chooses them for a stage.
MIXERS = {
    "A": "or L, the operator of attention",
    "C": "separable convolution",
    "S": "the host's own attention",
}


def look_up_arch(arch: str | dict[str, Any], table: Mapping[str, Mapping[str, Any]], host: str) -> dict[str, Any]:
    """Settings of a named arch; a dict is a complete arch, or one with a ``base`` name and what differs from it.

    Args:
        arch: a name or a dict.
        table: the host's archs by name.
        host: its name, for messages.

    Raises:
        TypeError: neither a name nor a dict.
        ValueError: an unknown name, an unknown or a missing key.
    """
    if not isinstance(arch, str | dict):
        raise TypeError(f"arch={arch!r}; it must be a name of {sorted(table)} or a dict")
    delta = {"base": arch} if isinstance(arch, str) else dict(arch)
    base = delta.pop("base", None)
    if base is not None and not (isinstance(base, str) and base in table):
        raise ValueError(f"arch {base!r} is not one of {host}'s: {sorted(table)}")
    if unknown := set(delta) - {key for settings in table.values() for key in settings}:
        known = sorted({key for settings in table.values() for key in settings})
        raise ValueError(f"arch has unknown keys {sorted(unknown)}; {host} knows {known}")
    resolved = deepcopy({**table.get(base, {}), **delta})
    if missing := set.intersection(*map(set, table.values())) - set(resolved):
        raise ValueError(f"arch={arch!r} lacks the keys {sorted(missing)}; give them, or base= one of {sorted(table)}")
    return resolved


def check_values(
    arch: Mapping[str, Any], table: Mapping[str, Mapping[str, Any]], num_stages: int, optional: Sequence[str]
) -> None:
    """Check each value of an arch against those of the table: its type, its sign, and one entry per stage.

    Args:
        arch: the settings.
        table: the host's archs by name.
        num_stages: length of settings with one entry per stage.
        optional: keys whose value is a size or None, also if all archs have None.

    Raises:
        TypeError, ValueError: an invalid value; see :func:`mmlisa.arguments.check`.
    """
    for key, value in arch.items():
        examples = [settings[key] for settings in table.values() if key in settings]
        if is_per_stage := isinstance(examples[0], tuple):
            examples = [entry for example in examples for entry in example]
        kinds = {type(example) for example in examples if example is not None}
        kind = kinds.pop() if len(kinds) == 1 else int if key in optional else Any
        hint: Any = {int: Positive if key.startswith("mlp_ratio") else Size, float: Positive}.get(kind, kind)
        if key in optional or None in examples:
            hint = Optional[hint]  # noqa: UP045 (Any | None is not allowed)
        if is_per_stage:
            depths = f" as depths={arch['depths']!r} has" if "depths" in arch else ""
            hint = Annotated[Sequence[hint], length(num_stages, f"one per stage{depths}")]
        check(f"arch: {key}", value, hint)


def parse_mixers(name: str, value: Any, num_stages: int, letters: str) -> str:
    """Parse the choice of a mixer per stage: a string of ``letters`` from :data:`MIXERS`. The papers' L is A.

    Raises:
        ValueError: another length or letter. The message says what each letter means.
    """
    mixers = value.replace("L", "A") if isinstance(value, str) else ""
    if len(mixers) != num_stages or set(mixers) - set(letters):
        meanings = " or ".join(f"{letter} ({MIXERS[letter]})" for letter in letters)
        raise ValueError(f"{name}={value!r}; it must be {num_stages} letters, one per stage: {meanings}")
    return mixers


def parse_image_size(image_size: int | Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    """A number or (H, W) as (H, W); (T, H, W) where ``axes`` has 3.

    Raises:
        ValueError: something else.
    """
    sizes = (image_size, image_size) if fits(image_size, int) else image_size
    if not fits(sizes, Sequence[Size]) or len(sizes) not in axes:
        forms = " or ".join("(H, W)" if n == 2 else "(T, H, W)" for n in axes)
        raise ValueError(f"image_size={image_size!r}; it must be a positive number of pixels, or {forms}")
    return tuple(sizes)
