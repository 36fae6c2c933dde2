"""From a config to a runner."""

from copy import deepcopy

import pytest
from mmengine.config import Config
from mmengine.hooks import EMAHook

from helpers.toy_runner import runner, toy_config
from mmlisa.training.checks import CheckpointGuardHook
from mmlisa.training.runner import build_runner


def guards(made) -> list[tuple[float, bool]]:
    return [(h.min_matched, h.same_shapes) for h in made.hooks if isinstance(h, CheckpointGuardHook)]


def test_the_callers_config_and_hooks_stay(tmp_path):
    cfg = toy_config(tmp_path, epochs=2, custom_hooks=[dict(type="mmlisa.CheckpointGuardHook", min_matched=0.3)])
    before = deepcopy(cfg)
    assert guards(build_runner(cfg, 0.5)) == [(0.3, False)]
    assert cfg.to_dict() == before.to_dict()
    # A test refuses what the training accepts.
    assert sorted(guards(build_runner(cfg, 0.9, same_shapes=True))) == [(0.3, False), (0.9, True)]
    assert all(Config.fromfile(dumped).custom_hooks == before.custom_hooks for dumped in tmp_path.glob("*.py"))


def test_two_averages_are_refused(tmp_path):
    """At a validation, both would exchange their averages with the weights in the same order."""
    hooks = [dict(type="EMAHook"), dict(type="mmlisa.CycleEMAHook", cycle=40)]
    with pytest.raises(ValueError, match="custom_hooks has two EMA hooks"):
        runner(tmp_path, custom_hooks=hooks)
    assert any(isinstance(hook, EMAHook) for hook in runner(tmp_path, custom_hooks=hooks[:1]).hooks)
