"""The preprocessor and the test pipeline are compared with those of the checkpoint, as text that is never run."""

import pytest
from mmengine.config import Config
from mmengine.model import ImgDataPreprocessor
from torch import nn

from mmlisa.registry import MODELS
from mmlisa.training.inputs import compare_inputs, compare_statistics, warn_of_inputs

PIPELINE = [dict(type="LoadImageFromFile"), dict(type="Resize", scale=(64, 64))]


def config(mean=(1.0, 2.0, 3.0), size=64, beside=False, **wrapper) -> Config:
    preprocessor = dict(type="DetDataPreprocessor", mean=list(mean))
    model = dict(type="FasterRCNN") if beside else dict(type="FasterRCNN", data_preprocessor=preprocessor)
    model = dict(**wrapper, detector=model) if wrapper else model
    pipeline = [PIPELINE[0], dict(PIPELINE[1], scale=(size, size))]
    cfg = dict(model=model, test_dataloader=dict(dataset=dict(type="CocoDataset", pipeline=pipeline)))
    return Config(cfg | (dict(data_preprocessor=preprocessor) if beside else {}))


@pytest.mark.parametrize("options", [{}, dict(beside=True), dict(type="mmlisa.TiledDetector")])
def test_equal_inputs(options):
    assert compare_inputs(config().pretty_text, config(**options)) == []


def test_another_normalisation_and_another_size_are_named():
    (line,) = compare_inputs(config().pretty_text, config(mean=(0.0, 2.0, 3.0)))
    assert "data_preprocessor: mean.0 was 1.0, and is 0.0" in line
    (line,) = compare_inputs(config().pretty_text, config(size=32))
    assert "test pipeline: 1.scale.0 was 64, and is 32" in line
    assert len(compare_inputs(config().pretty_text, Config(dict(model=dict(type="FasterRCNN"))))) == 2


def test_files_without_a_config_or_with_code(tmp_path, monkeypatch):
    lines = []
    monkeypatch.setattr("mmlisa.training.inputs.print_log", lambda line, **_: lines.append(line))
    for checkpoint in ({}, {"meta": {"iter": 3}}):
        warn_of_inputs(checkpoint, config(), "a.pth")
    assert lines == ["checkpoint 'a.pth' holds no config; preprocessor and test pipeline are not compared"] * 2
    warn_of_inputs({"meta": {"text_of_config": config().pretty_text}}, config(size=32), "a.pth")
    assert "a.pth' was trained with another test pipeline" in lines[-1]
    text = f"open({str(tmp_path / 'ran')!r}, 'w')\nmodel = dict(data_preprocessor=open({str(tmp_path / 'ran')!r}, 'w'))"
    assert "another data_preprocessor" in compare_inputs(text, config())[0]
    assert "cannot be parsed" in compare_inputs("model = (", config())[0]
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("mean", "expected"),
    [
        ([123.675, 116.28, 103.53], ""),
        ([127.5] * 3, "data_preprocessor.mean is"),
        ([127.5], "data_preprocessor.mean is"),
        (None, "data_preprocessor has no mean"),
    ],
)
def test_mean_and_std_are_those_of_timms_network(mean, expected):
    model = nn.Module()
    model.backbone = MODELS.build(dict(type="mmlisa.TimmBackbone", model_name="convnext_atto"))
    model.data_preprocessor = ImgDataPreprocessor(mean=mean, std=mean and [58.395, 57.12, 57.375][: len(mean)])
    note = compare_statistics(model)
    assert expected in note
    assert bool(note) == bool(expected)
