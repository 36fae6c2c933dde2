"""Opening of trained models."""

import importlib.util
import re

import pytest
from mmengine.registry import DefaultScope

import mmlisa
from helpers.exported import detector
from mmlisa import cli
from mmlisa.inference.load import DEMO, DEMO_CONFIG


def test_a_checkpoint_without_a_config_executes_nothing(tmp_path):
    """A folder of a stranger may hold a Python file beside the checkpoint."""
    (tmp_path / "stranger.py").write_text("raise SystemExit")
    with pytest.raises(ValueError, match=r"config.*stranger\.py"):
        mmlisa.load(tmp_path / "best.pth")


def test_checkpoint_and_config_come_in_either_order(tmp_path):
    found = [
        mmlisa.load(*files).predict(DEMO / "000000000006.jpg")
        for files in ((DEMO / "model.pth", DEMO_CONFIG), (DEMO_CONFIG, DEMO / "model.pth"))
    ]
    assert found[0].scores.tolist() == found[1].scores.tolist()
    assert mmlisa.load("config.py", detector(tmp_path / "model.onnx")).task == "detection"
    with pytest.raises(ValueError, match="checkpoint"):
        mmlisa.load(DEMO_CONFIG)


@pytest.mark.parametrize("scope", [None, "mmseg"])
def test_the_default_scope_stays(scope, monkeypatch):
    monkeypatch.setattr(DefaultScope, "_instance_dict", type(DefaultScope._instance_dict)())
    if scope:
        DefaultScope.get_instance(scope, scope_name=scope)
    model = mmlisa.load(DEMO / "model.pth", DEMO_CONFIG)
    assert len(model.predict(DEMO / "000000000006.jpg").boxes) == 3
    current = DefaultScope.get_current_instance()
    assert (current and current.scope_name) == scope


def test_the_demo_takes_its_checkpoint_where_no_runtime_is_installed(tmp_path, monkeypatch, capsys):
    missing, find = ["onnxruntime"], importlib.util.find_spec
    for module in ("mmlisa.inference.load", "mmlisa.runtime.model"):
        monkeypatch.setattr(f"{module}.find_spec", lambda name: name not in missing and find(name))
    cli.main(["demo", "--out-dir", str(tmp_path)])
    assert "motorcycle" in capsys.readouterr().out
    missing.append("mmdet")
    with pytest.raises(SystemExit):
        cli.main(["demo", "--out-dir", str(tmp_path)])
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search("pip install onnxruntime", line)
