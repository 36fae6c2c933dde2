"""Nonsense in configs: a model that runs, or a ValueError or TypeError that names the argument and its value."""

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from helpers.backbones import CASES as BACKBONES
from mmlisa.arguments import annotations
from mmlisa.models.attention import build_attention
from mmlisa.models.backbones.base import Backbone
from mmlisa.registry import MODELS

PARTS = ("attention", "backbones", "necks", "dense_heads", "heads")
for part in PARTS:
    pytest.importorskip("mmdet")
    pytest.importorskip("mmpretrain")
    import_module(f"mmlisa.models.{part}")

# What constructors need, and what keeps networks small.
NECK = dict(in_channels=(8, 8), out_channels=8, num_outs=3)
REQUIRED: dict[str, dict[str, Any]] = {
    "CSPPAN": NECK,
    "LCPAN": NECK,
    "SimpleFeaturePyramid": dict(in_channels=8),
    "PicoHead": dict(num_classes=2, in_channels=8, strides=(8, 16)),
    "MlpClsHead": dict(num_classes=2, in_channels=8),
    "DistilledClassifier": dict(backbone=dict(type="mmlisa.LCNet", arch=dict(scale=0.25)), teacher={}),
    "SelfDistilledClassifier": dict(backbone=dict(type="mmlisa.LCNet", arch=dict(scale=0.25))),
}
SMALL = {
    cfg["type"]: {key: value for key, value in cfg.items() if key != "type"} for cfg in reversed(BACKBONES.values())
}
# MMEngine's and the libraries' own, looked at when training starts.
NOT_LOOKED_INTO = {"init_cfg", "train_cfg", "test_cfg", "teacher", "teacher_checkpoint", "return"}


def names(cls: type) -> list[str]:
    """The arguments of a class and of the bases that it passes options on to."""
    return sorted(
        {*annotations(cls)} - NOT_LOOKED_INTO - {"options", "args", "kwargs", "channels", "num_heads", "grid"}
    )


OURS = {n: c for n, c in MODELS.module_dict.items() if c.__module__.rpartition(".")[0].split("models.")[-1] in PARTS}
OPERATORS = {n: c for n, c in OURS.items() if ".attention." in c.__module__}
HOSTS = {n: c for n, c in OURS.items() if issubclass(c, Backbone)}
OTHERS = {n: c for n, c in OURS.items() if n not in OPERATORS and n not in HOSTS}

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-3, 20)
    | st.sampled_from([0.0, -1.0, 1.5, float("nan"), float("inf"), 1e-3])
    | st.sampled_from(["", "LN", "BN", "x", "small", "LLLL", "featmap", b"x"])
)
TYPES = st.sampled_from([None, 3, "", "Nope", "LN", "BN", "ReLU", "LiSA", "SoftmaxAttention", "mmdet.GIoULoss"])
NONSENSE = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=5).map(tuple)
        | st.lists(inner, max_size=5)
        | st.dictionaries(st.sampled_from(["base", "depths", "x", "num_patterns", "requires_grad"]), inner, max_size=2)
        | st.builds(lambda name, rest: {"type": name, **rest}, TYPES, st.dictionaries(st.just("x"), inner, max_size=1))
    ),
    max_leaves=5,
)


def leaves(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return [leaf for inner in value.values() for leaf in leaves(inner)] + list(value)
    if isinstance(value, list | tuple):
        return [leaf for inner in value for leaf in leaves(inner)]
    return [value]


def check(build: Callable[[], nn.Module], name: str, value: Any, run: Callable[[nn.Module], Any]) -> None:
    try:
        model = build()
    except (ValueError, TypeError) as error:
        message = str(error)
        assert name in message, message
        assert repr(value) in message or any(repr(leaf) in message for leaf in leaves(value)), message
        return
    try:
        with torch.no_grad():
            run(model.eval())
    except ValueError as error:  # hosts do not know what a valid operator takes
        if "no place for class tokens" not in str(error):
            raise


@pytest.mark.fuzz
@given(data=st.data())
def test_operators(data):
    kind = data.draw(st.sampled_from(sorted(OPERATORS)), "operator")
    name = data.draw(st.sampled_from([*names(OPERATORS[kind]), "channels", "num_heads"]), "argument")
    value = data.draw(NONSENSE, "value")
    arguments = {"channels": 32, "num_heads": 2}
    options = {"type": kind}
    (arguments if name in arguments else options)[name] = value
    check(
        lambda: build_attention(options, **arguments, grid=(6, 7)),
        name,
        value,
        lambda model: model(torch.randn(1, 42, arguments["channels"]), (6, 7)),
    )


@pytest.mark.fuzz
@given(data=st.data())
def test_backbones(data):
    kind = data.draw(st.sampled_from(sorted(HOSTS)), "backbone")
    cls, options = HOSTS[kind], dict(SMALL[kind])
    name = data.draw(st.sampled_from(names(cls)), "argument")
    value = data.draw(NONSENSE, "value")
    options[name] = value
    channels = value if name == "in_channels" else 3
    check(lambda: cls(**options), name, value, lambda model: model(torch.randn(1, channels, 32, 40)))


@pytest.mark.fuzz
@given(data=st.data())
def test_archs(data):
    kind = data.draw(st.sampled_from(sorted(HOSTS)), "backbone")
    cls, options = HOSTS[kind], dict(SMALL[kind])
    settings = cls.resolve_arch(options["arch"])  # all keys, with what the table leaves open
    key = data.draw(st.sampled_from(sorted({*settings, "base"})), "key")
    value = data.draw(NONSENSE, "value")
    options["arch"] = {**(options["arch"] if key == "base" else settings), key: value}
    check(
        lambda: cls(**options), "arch" if key == "base" else key, value, lambda model: model(torch.randn(1, 3, 32, 40))
    )


@pytest.mark.fuzz
@given(data=st.data())
def test_necks_and_heads(data):
    kind = data.draw(st.sampled_from(sorted(OTHERS)), "kind")
    cls, options = OTHERS[kind], dict(REQUIRED[kind])
    name = data.draw(st.sampled_from(names(cls)), "argument")
    value = data.draw(NONSENSE, "value")
    check(lambda: cls(**{**options, name: value}), name, value, lambda model: None)


def test_every_registered_class_is_fuzzed():
    assert set(HOSTS) == set(SMALL)
    assert set(OTHERS) == set(REQUIRED)
    assert len(OPERATORS) > 20
    assert all(names(cls) for cls in {**HOSTS, **OTHERS}.values())
    assert all(inspect.isclass(cls) for cls in OURS.values())
