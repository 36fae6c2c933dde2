"""Checks of values against type annotations: of constructors' arguments, and of the entries of archs.

The annotations below restrict values, too: ``kernel_size: Size = 3``, ``norm_cfg: Typed | None = None``. NumPy's integers and
floats are numbers. Registries make constructors check their arguments, because only they know the names of positional ones.
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, wraps
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints


@dataclass(frozen=True)
class Rule:
    """A condition on values of the right type, and its description in messages."""

    holds: Callable[[Any], bool]
    words: str


def at_least(least: int) -> Rule:
    """Return the rule that a number is at least ``least``."""
    return Rule(lambda value: value >= least, f"of at least {least}")


def length(number: int, meaning: str) -> Rule:
    """Return the rule that a list has ``number`` entries."""
    return Rule(lambda value: len(value) == number, f"({number} in all, {meaning})")


Size = Annotated[int, at_least(1)]
Count = Annotated[int, at_least(0)]
OddSize = Annotated[int, Rule(lambda value: value >= 1 and value % 2 == 1, "that is positive and odd")]
Positive = Annotated[float, Rule(lambda value: value > 0, "greater than 0")]
NotNegative = Annotated[float, Rule(lambda value: value >= 0, "of at least 0")]
Share = Annotated[float, Rule(lambda value: 0 <= value <= 1, "from 0 to 1")]
NOT_EMPTY = Rule(len, "and at least one")
# The config of an object that a registry builds.
Typed = Annotated[
    dict[str, Any],
    Rule(lambda value: bool(value.get("type")) and isinstance(value["type"], str | type), "with a 'type'"),
]


def check(name: str, value: Any, hint: Any) -> None:
    """Compare a value with an annotation.

    Raises:
        TypeError: a value of another type.
        ValueError: a value that the annotation excludes. Both name the argument, its value and the valid values.
    """
    if not fits(value, hint):
        error = ValueError if fits(value, hint, with_rules=False) else TypeError
        raise error(f"{name}={value!r}; it must be {_words(hint)}")


def checking_arguments(cls: type) -> type:
    """Make the constructor of a class of this package check its arguments; other classes stay unchanged.

    Arguments that the constructor passes on are looked up in the bases. Arguments without an annotation pass. If a config among
    the arguments cannot be built, the error of the registry or library is extended by that config.
    """
    if not _is_ours(cls):
        return cls
    init = cls.__init__
    names = list(inspect.signature(init).parameters)[1:]

    @wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        arguments = {**dict(zip(names, args, strict=False)), **kwargs}
        hints = annotations(cls)
        for name, value in arguments.items():
            check(f"{cls.__name__}: {name}", value, hints.get(name, Any))
        try:
            init(self, *args, **kwargs)
        except (KeyError, TypeError, AttributeError, AssertionError) as error:
            configs = {name: value for name, value in arguments.items() if _may_be_typed(hints.get(name), value)}
            if not configs or any(name in str(error) for name in configs):
                raise
            shown = " or ".join(f"{name}={value!r}" for name, value in configs.items())
            raise (TypeError if isinstance(error, TypeError) else ValueError)(
                f"{cls.__name__}: {shown}: {error}"
            ) from error

    cls.__init__ = __init__
    return cls


def _is_ours(cls: type) -> bool:
    return cls.__module__.split(".")[0] == __name__.split(".")[0]


@cache
def annotations(cls: type) -> dict[str, Any]:
    """Return the annotations of all arguments of a class of this package, its own and those that it passes on, by name."""
    hints: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if _is_ours(base) and "__init__" in vars(base):
            hints |= get_type_hints(vars(base)["__init__"], include_extras=True)
    return hints


def fits(value: Any, hint: Any, with_rules: bool = True) -> bool:
    """Return whether a value has the type of an annotation and, by default, satisfies its rules."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return fits(value, inner[0], with_rules) and (
            not with_rules or all(rule.holds(value) for rule in hint.__metadata__)
        )
    if origin is Literal:  # of strings
        return value in inner if with_rules else isinstance(value, str)
    if origin in (Union, UnionType):
        return any(fits(value, each, with_rules) for each in inner)
    if hint is float:
        with suppress(OverflowError):  # of an integer that no float holds
            return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
        return False
    if hint is int:
        return isinstance(value, Integral) and not isinstance(value, bool)
    if hint in (bool, str, dict, NoneType):
        return isinstance(value, hint)
    if origin in (dict, Mapping):
        return isinstance(value, Mapping)
    if origin in (list, tuple, Sequence):
        is_list = isinstance(value, Sequence) and not isinstance(value, str | bytes)
        return is_list and (not inner or all(fits(each, inner[0], with_rules) for each in value))
    return True


def _may_be_typed(hint: Any, value: Any) -> bool:
    return isinstance(value, Mapping) and (hint is Typed or Typed in get_args(hint))


_WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    str: "a string",
    dict: "a dict",
    NoneType: "None",
}


def _words(hint: Any) -> str:
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return " ".join([_words(inner[0]), *(rule.words for rule in hint.__metadata__)])
    if origin is Literal:
        return " or ".join(map(repr, inner))
    if origin in (Union, UnionType):
        return " or ".join(map(_words, inner))
    if origin in (list, tuple, Sequence):
        return f"a list, each entry {_words(inner[0])}"
    return _WORDS.get(origin or hint, "another value")
