"""User settings of a network: the arch, by name or as a dict, and the image size."""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from inspect import Parameter, signature
from typing import Any

from mmlisa.errors import UserError

_NAMED = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
# Token mixers by the letter that chooses them for a stage.
MIXERS = {"A": "or L, the operator of attention", "C": "separable convolution", "S": "the backbone's own attention"}


def look_up_arch(arch: str | dict[str, Any], table: Mapping[str, Mapping[str, Any]], backbone: str) -> dict[str, Any]:
    """Return the settings of a named arch; a dict is a complete arch, or one with a ``base`` name and what differs from it.

    Raises:
        UserError: a name that is not in ``table``, or an unknown key, which would change nothing.
    """
    delta = {"base": arch} if isinstance(arch, str) else dict(arch)
    base = delta.pop("base", None)
    if base is not None and base not in table:
        raise UserError(f"arch {base!r} is not one of {backbone}'s: {sorted(table)}")
    keys = {key for settings in table.values() for key in settings}
    if unknown := set(delta) - keys:
        raise UserError(f"arch has unknown keys {sorted(unknown)}; {backbone} knows {sorted(keys)}")
    return deepcopy({**table.get(base, {}), **delta})


def check_stages(arch: Mapping[str, Any], table: Mapping[str, Mapping[str, Any]], count: int | None = None) -> None:
    """Check that the settings which are tuples in the table have ``count`` entries; for None, that they have equally many.

    Another number is a UserError, because further entries would be ignored.
    """
    per_stage = {key for settings in table.values() for key, value in settings.items() if isinstance(value, tuple)}
    lengths = {key: len(value) for key, value in arch.items() if key in per_stage}
    if len({count, *lengths.values()} - {None}) > 1:
        counts = ", ".join(f"{key} has {length}" for key, length in lengths.items())
        raise UserError(f"arch: {counts} entries; each must have {count or 'one per stage'}")


def parse_mixers(name: str, value: str, num_stages: int, letters: str) -> str:
    """Parse the choice of a mixer per stage, a string of ``letters``; the papers' L is A. Anything else is a UserError."""
    mixers = value.replace("L", "A")
    if len(mixers) != num_stages or set(mixers) - set(letters):
        meanings = " or ".join(f"{letter} ({MIXERS[letter]})" for letter in letters)
        raise UserError(f"{name}={value!r}; it must be {num_stages} letters, one per stage: {meanings}")
    return mixers


def parse_image_size(image_size: int | Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    """Return a number or (H, W) as (H, W); (T, H, W) where ``axes`` has 3. Another number of axes is a UserError."""
    sizes = tuple(image_size) if isinstance(image_size, Sequence) else (image_size, image_size)
    if len(sizes) not in axes:
        forms = " or ".join("(H, W)" if n == 2 else "(T, H, W)" for n in axes)
        raise UserError(f"image_size={image_size!r}; it must be a number of pixels, or {forms}")
    return sizes


def check_options(cls: type, options: Iterable[str]) -> None:
    """Check the names of keyword arguments for a class whose constructors pass them on to each other.

    The message of the UserError lists the names that the class knows.
    """
    names: dict[str, None] = {}
    for base in cls.__mro__:
        arguments = signature(base.__init__).parameters.values() if "__init__" in vars(base) else ()
        names |= dict.fromkeys(argument.name for argument in arguments if argument.kind in _NAMED)
        if arguments and not any(argument.kind is Parameter.VAR_KEYWORD for argument in arguments):
            break
    if unknown := [name for name in options if name not in names]:
        names = ", ".join(name for name in names if name not in ("self", "channels", "num_heads", "grid"))
        raise UserError(f"{cls.__name__} has no option {', '.join(map(repr, unknown))}; its options are {names}")
