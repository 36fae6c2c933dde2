"""Arguments checked against the annotations of the constructor that takes them: one place for what configs get wrong.

An annotation says more than a type where it is one of those below: ``kernel_size: Size = 3``, ``norm_cfg: Typed | None = None``.
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, wraps
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints


@dataclass(frozen=True)
class Rule:
    """A condition on values of the right type, and how a message says it."""

    holds: Callable[[Any], bool]
    words: str


def at_least(least: int) -> Rule:
    return Rule(lambda value: value >= least, f"of at least {least}")


Size = Annotated[int, at_least(1)]
Count = Annotated[int, at_least(0)]
OddSize = Annotated[int, Rule(lambda value: value >= 1 and value % 2 == 1, "that is positive and odd")]
Positive = Annotated[float, Rule(lambda value: value > 0, "greater than 0")]
NotNegative = Annotated[float, Rule(lambda value: value >= 0, "of at least 0")]
Share = Annotated[float, Rule(lambda value: 0 <= value <= 1, "from 0 to 1")]
NOT_EMPTY = Rule(len, "and at least one")
# A config of something that a registry builds.
Typed = Annotated[
    dict[str, Any],
    Rule(lambda value: bool(value.get("type")) and isinstance(value["type"], str | type), "with a 'type'"),
]


def check_arguments(cls: type, arguments: Mapping[str, Any]) -> None:
    """Compares named arguments of a class of this package with the annotations of its constructors.

    Args:
        cls: the class; what its constructor passes on is looked up in its bases.
        arguments: the values by name. One without an annotation that can be checked passes.

    Raises:
        TypeError: a value of another type.
        ValueError: a value that its annotation excludes. Both name the argument, its value and what would be right.
    """
    hints = annotations(cls)
    for name, value in arguments.items():
        hint = hints.get(name, Any)
        if not _fits(value, hint):
            error = ValueError if _fits(value, hint, with_rules=False) else TypeError
            raise error(f"{cls.__name__}: {name}={value!r}; it must be {_words(hint)}")


def checking_arguments(cls: type) -> type:
    """Makes the constructor of a class of this package check its arguments; other classes stay as they are.

    What a registry or a library raises where a config among the arguments cannot be built names that config, too.
    """
    if not _is_ours(cls):
        return cls
    init = cls.__init__
    names = list(inspect.signature(init).parameters)[1:]

    @wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        arguments = {**dict(zip(names, args, strict=False)), **kwargs}
        check_arguments(cls, arguments)
        try:
            init(self, *args, **kwargs)
        except (KeyError, TypeError, AttributeError, AssertionError) as error:
            configs = {
                name: value for name, value in arguments.items() if _may_be_typed(annotations(cls).get(name), value)
            }
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
    """Of all arguments that a class of this package takes, its own and those that it passes on, by name."""
    hints: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if _is_ours(base) and "__init__" in vars(base):
            hints |= get_type_hints(vars(base)["__init__"], include_extras=True)
    return hints


def _fits(value: Any, hint: Any, with_rules: bool = True) -> bool:
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        fits = _fits(value, inner[0], with_rules)
        return fits and (not with_rules or all(rule.holds(value) for rule in hint.__metadata__))
    if origin in (Union, UnionType):
        return any(_fits(value, each, with_rules) for each in inner)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint in (bool, str, dict, NoneType):
        return isinstance(value, hint)
    if origin in (dict, Mapping):
        return isinstance(value, Mapping)
    if origin in (list, tuple, Sequence):
        is_list = isinstance(value, Sequence) and not isinstance(value, str | bytes)
        return is_list and (not inner or all(_fits(each, inner[0], with_rules) for each in value))
    return True


def _may_be_typed(hint: Any, value: Any) -> bool:
    return isinstance(value, Mapping) and (hint is Typed or Typed in get_args(hint))


_WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    str: "text",
    dict: "a dict",
    NoneType: "None",
}


def _words(hint: Any) -> str:
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return " ".join([_words(inner[0]), *(rule.words for rule in hint.__metadata__)])
    if origin in (Union, UnionType):
        return " or ".join(map(_words, inner))
    if origin in (list, tuple, Sequence):
        return f"a list, each entry {_words(inner[0])}"
    return _WORDS.get(origin or hint, "something else")
