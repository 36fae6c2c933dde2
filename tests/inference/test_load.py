"""Opening of trained models."""

import importlib.util
import pickle
import re
import time
from threading import Thread

import pytest
import torch
from mmengine.registry import DefaultScope
from torch import nn

import mmlisa
from helpers.exported import detector
from mmlisa import cli
from mmlisa.inference import predictor
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


def test_models_are_loaded_one_after_the_other(monkeypatch):
    """MMEngine's default scope is one for all threads."""
    inside, most = [], []

    def build(*args, **options):
        inside.append(args)
        most.append(len(inside))
        time.sleep(0.05)
        inside.pop()

    monkeypatch.setattr(predictor, "Predictor", build)
    threads = [Thread(target=mmlisa.load, args=(DEMO / "model.pth", DEMO_CONFIG)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 4


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_a_loaded_model_is_pickled_with_its_speed(dtype):
    model = mmlisa.load(DEMO / "model.pth", DEMO_CONFIG, dtype=dtype)
    copy = pickle.loads(pickle.dumps(model))
    for one in (model, copy):
        assert len(one.predict(DEMO / "000000000006.jpg").boxes) == 3
    kinds = [[type(module) for module in one.model.modules()] for one in (model, copy)]
    assert kinds[0] == kinds[1]
    assert nn.Linear not in kinds[0]


def test_the_linear_layers_of_a_plain_model_are_quantised():
    plain = mmlisa.load(DEMO / "model.pth", DEMO_CONFIG, faster=False)
    plain.model = torch.ao.quantization.quantize_dynamic(plain.model, {nn.Linear})
    assert any("quantized" in type(module).__module__ for module in plain.model.backbone.modules())
    assert len(plain.predict(DEMO / "000000000006.jpg").boxes) == 3


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
