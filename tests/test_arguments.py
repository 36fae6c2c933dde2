"""Constructors check their arguments against their annotations."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from mmlisa import arguments, registry
from mmlisa.arguments import (
    Count,
    NotNegative,
    OddSize,
    Positive,
    Share,
    Size,
    Typed,
    annotations,
    check,
    checking_arguments,
    length,
)


class Base:
    __module__ = "mmlisa.example"

    def __init__(self, size: Size = 1, names: Sequence[str] = (), **_: Any) -> None:
        self.size = size


@checking_arguments
class Example(Base):
    __module__ = "mmlisa.example"

    def __init__(
        self,
        kernel: OddSize | Sequence[OddSize] = 3,
        *,
        count: Count = 0,
        factor: Positive = 1.0,
        share: Share | None = None,
        flag: bool = False,
        choice: Literal["a", "b"] | None = None,
        cfg: Typed | None = None,
        anything: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if cfg is not None:
            {"a": 1, int: 2}[cfg["type"]]


GOOD = [
    dict(kernel=5), dict(kernel=(3, 5)), dict(kernel=[1]), dict(count=0), dict(factor=2), dict(share=None), dict(share=0),
    dict(flag=True), dict(cfg=dict(type="a", b=1)), dict(cfg=dict(type=int)), dict(anything=Ellipsis), dict(size=1),
    dict(names=["a"]), dict(names=()), dict(no_such_option=3), dict(size=np.int64(2)), dict(kernel=(np.int32(3), 5)),
    dict(factor=np.float32(0.5)), dict(share=np.float64(0.5)), dict(choice="b"), dict(choice=None),
]  # fmt: skip
BAD = [
    (dict(kernel=4), ValueError, r"Example: kernel=4; it must be a whole number that is positive and odd or a list, each entry"),
    (dict(kernel=(3, 4)), ValueError, r"kernel=\(3, 4\)"), (dict(kernel="3"), TypeError, "kernel='3'"),
    (dict(kernel=True), TypeError, "kernel=True"), (dict(kernel=3.0), TypeError, r"kernel=3\.0"),
    (dict(count=-1), ValueError, "count=-1; it must be a whole number of at least 0"), (dict(size=0), ValueError, "size=0"),
    (dict(factor=0), ValueError, "factor=0; it must be a number greater than 0"),
    (dict(factor=float("nan")), TypeError, "factor=nan"), (dict(factor=float("inf")), TypeError, "factor=inf"),
    (dict(factor=10**400), TypeError, "factor=1000"),  # no float holds it
    (dict(share=1.5), ValueError, r"share=1\.5; it must be a number from 0 to 1 or None"), (dict(flag=1), TypeError, "flag=1"),
    (dict(flag=None), TypeError, "flag=None; it must be True or False"), (dict(cfg={}), ValueError, "cfg={}; it must be a dict"),
    (dict(cfg="LN"), TypeError, "cfg='LN'"), (dict(cfg=dict(type="")), ValueError, "cfg="),
    (dict(size=np.bool_(True)), TypeError, "size="), (dict(factor=np.float32("nan")), TypeError, "factor="),
    (dict(choice="c"), ValueError, "choice='c'; it must be 'a' or 'b' or None"), (dict(choice=1), TypeError, "choice=1"),
    (dict(names="abc"), TypeError, "names"), (dict(names=[1]), TypeError, r"names=\[1\]"),
]  # fmt: skip


@pytest.mark.parametrize("options", GOOD, ids=str)
def test_good_ones_pass(options):
    Example(**options)


@pytest.mark.parametrize(("options", "error", "message"), BAD, ids=lambda value: str(value)[:30])
def test_bad_ones_are_named(options, error, message):
    with pytest.raises(error, match=message):
        Example(**options)


BOUNDARIES = [  # a rule, a value that just passes, and one that just does not
    (Size, 1, 0), (Count, 0, -1), (OddSize, 1, 0), (OddSize, 1, -1), (OddSize, 3, 2), (Positive, 1e-9, 0.0),
    (NotNegative, 0.0, -1e-9), (NotNegative, 0.5, -0.5), (Share, 0.0, -1e-9), (Share, 1.0, 1 + 1e-9),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "good", "bad"), BOUNDARIES)
def test_boundaries(rule, good, bad):
    check("size", good, rule)
    with pytest.raises(ValueError, match=f"size={bad}; it must be"):
        check("size", bad, rule)


def test_a_registered_class_checks_by_itself():
    assert Example(5, size=2).size == 2
    with pytest.raises(ValueError, match="Example: kernel=4"):
        Example(4)
    # What cannot be built from a config names that config, too.
    with pytest.raises(ValueError, match=r"Example: cfg=\{'type': 'b'\}: 'b'"):
        Example(cfg=dict(type="b"))


def test_an_argument_has_the_annotation_of_the_class_itself_not_that_of_its_base():
    @checking_arguments
    class Derived(Base):
        __module__ = "mmlisa.example"

        def __init__(self, size: OddSize | None = None, **options: Any) -> None:
            super().__init__(**options)

    Derived(size=None)
    with pytest.raises(ValueError, match="Derived: size=2"):
        Derived(size=2)


def test_classes_of_others_stay_as_they_are():
    class Foreign:
        def __init__(self, size: Size) -> None:
            pass

    init = Foreign.__init__
    assert checking_arguments(Foreign).__init__ is init


def test_every_registered_annotation_can_be_read():
    pytest.importorskip("mmdet")
    pytest.importorskip("mmpretrain")
    found = 0
    for each in vars(registry).values():
        if isinstance(each, registry._Registry):
            each.get("no such name")  # imports all of them
            for cls in each.module_dict.values():
                if arguments._is_ours(cls):
                    annotations(cls)
                    found += 1
    assert found > 60


def test_lists_of_a_length():
    hint = Annotated[Sequence[Size], length(2, "one per stage")]
    check("arch: depths", (1, np.int64(2)), hint)
    with pytest.raises(ValueError, match=r"arch: depths=\(1,\); it must be .* at least 1 \(2 in all"):
        check("arch: depths", (1,), hint)
