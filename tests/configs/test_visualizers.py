"""Curves and pictures of a run lie in its own folder, also of the second run in a process."""

from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
from mmengine.config import Config
from mmengine.registry import DefaultScope
from mmengine.runner import Runner

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.mark.parametrize("library", ["mmdet", "mmseg", "mmpretrain"])
def test_two_runs_in_a_process(library, tmp_path):
    import_module(f"{library}.visualization")  # registers its visualizer
    for name in ("first", "second"):
        cfg = Config.fromfile(CONFIGS / "_base_" / f"runtime_{library}.py")
        run = SimpleNamespace(_experiment_name=f"{library}_{name}", _log_dir=str(tmp_path / name))
        with DefaultScope.overwrite_default_scope(library):
            Runner.build_visualizer(run, cfg.visualizer).add_scalar("loss", 1.0)
        assert list((tmp_path / name).rglob("scalars.json"))
