"""User settings of a network: the arch, by name or as a dict, and the image size."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

# Token mixers by the letter that chooses them for a stage.
MIXERS = {
    "A": "or L, the operator of attention",
    "C": "separable convolution",
    "S": "the backbone's own attention",
}


def look_up_arch(arch: str | dict[str, Any], table: Mapping[str, Mapping[str, Any]], backbone: str) -> dict[str, Any]:
    """Return the settings of a named arch; a dict is a complete arch, or one with a ``base`` name and what differs from it.

    Args:
        arch: a name or a dict.
        table: the backbone's archs by name.
        backbone: its name, for messages.

    Raises:
        ValueError: an unknown name, or an unknown key, which would change nothing.
    """
    delta = {"base": arch} if isinstance(arch, str) else dict(arch)
    base = delta.pop("base", None)
    if base is not None and base not in table:
        raise ValueError(f"arch {base!r} is not one of {backbone}'s: {sorted(table)}")
    known = {key for settings in table.values() for key in settings}
    if unknown := set(delta) - known:
        raise ValueError(f"arch has unknown keys {sorted(unknown)}; {backbone} knows {sorted(known)}")
    return deepcopy({**table.get(base, {}), **delta})


def check_stages(arch: Mapping[str, Any], table: Mapping[str, Mapping[str, Any]], num_stages: int) -> None:
    """Check that each setting which is a tuple in the table has one entry per stage.

    Raises:
        ValueError: another number of entries. Further ones would be ignored.
    """
    for key, value in arch.items():
        is_per_stage = any(isinstance(settings.get(key), tuple) for settings in table.values())
        if is_per_stage and len(value) != num_stages:
            raise ValueError(f"arch: {key}={value!r}; it must have {num_stages} entries, one per stage")


def parse_mixers(name: str, value: str, num_stages: int, letters: str) -> str:
    """Parse the choice of a mixer per stage: a string of ``letters`` from :data:`MIXERS`. The papers' L is A.

    Raises:
        ValueError: another length or letter. The message says what each letter means.
    """
    mixers = value.replace("L", "A")
    if len(mixers) != num_stages or set(mixers) - set(letters):
        meanings = " or ".join(f"{letter} ({MIXERS[letter]})" for letter in letters)
        raise ValueError(f"{name}={value!r}; it must be {num_stages} letters, one per stage: {meanings}")
    return mixers


def parse_image_size(image_size: int | Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    """Return a number or (H, W) as (H, W); (T, H, W) where ``axes`` has 3.

    Raises:
        ValueError: another number of axes.
    """
    sizes = tuple(image_size) if isinstance(image_size, Sequence) else (image_size, image_size)
    if len(sizes) not in axes:
        forms = " or ".join("(H, W)" if n == 2 else "(T, H, W)" for n in axes)
        raise ValueError(f"image_size={image_size!r}; it must be a number of pixels, or {forms}")
    return sizes
