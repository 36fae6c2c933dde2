"""Mistakes in exports and in exported files are named before PyTorch is imported."""

import sys

import onnx
import pytest

import export
import infer
import test
from helpers.exported import detector
from mmlisa import cli

FILES = ["config.py", "none"]
DEMO = "classifier_hylisanet_demo.py"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["model.pb"], "OUT 'model.pb' has the suffix '.pb'; it must be one of .onnx, .pt2"),
        (["missing/model.onnx"], "folder 'missing' of OUT 'missing/model.onnx' does not exist"),
        (["model.onnx", "--dynamic", "--size", "8", "48", "48"], "clips have a fixed size; leave out --dynamic"),
        (["model.onnx", "--size", "16", "64"], "--size 16 64: H and W of at least 32"),
        (["model.onnx", "--size", "64"], "--size 64: H and W"),
        (["model.onnx", "--raw", "--int8", "."], "--int8 needs an .onnx file with results"),
        (["model.onnx", "--raw", "--uint8"], "--uint8 needs a file with results: leave out --raw and --backbone-only"),
        (["model.onnx", "--backbone-only", "--uint8"], "--uint8 needs a file with results"),
        (["model.onnx", "--int8", "missing"], "calibration folder 'missing' does not exist"),
        (["model.onnx", "--int8", "one"], "calibration folder 'one' has 1 images; at least 8 are needed"),
    ],
)
def test_mistakes(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "image.png").touch()
    with pytest.raises(SystemExit):
        export.parse_args([*FILES, *arguments])
    assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("tool", [infer, test])
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: onnx.save(without_metadata(path), path), "has no metadata of mmlisa"),
        (lambda path: path.write_text("text"), "is not an ONNX file"),
        (lambda path: detector(path, format=2), "has format 2; update mmlisa"),
    ],
)
def test_other_files_than_exported_ones(tool, make, message, tmp_path, monkeypatch, capsys):
    path = tmp_path / "model.onnx"
    make(path)
    (tmp_path / "image.png").touch()
    monkeypatch.setitem(sys.modules, "mmlisa.training.config", None)  # its import would fail
    words = [str(path), str(tmp_path / "image.png")] if tool is infer else ["mask_rcnn_hylisanet_demo.py", str(path)]
    with pytest.raises(SystemExit):
        cli.run(tool.main, tool.parse_args(words))
    (line,) = capsys.readouterr().err.splitlines()
    assert f"error: '{path}' {message}" in line


def without_metadata(path):
    model = onnx.load(detector(path))
    del model.metadata_props[:]
    return model


@pytest.mark.parametrize("difference", [1.0, float("nan")])
def test_a_file_that_differs_from_the_model_is_refused(difference, tmp_path, monkeypatch):
    from mmlisa.deploy import export as module

    monkeypatch.setattr(module, "export", lambda model, out, *_, **__: out.write_text("new"))
    monkeypatch.setattr(module, "largest_difference", lambda *_: difference)
    (tmp_path / "m.onnx").write_text("earlier")
    with pytest.raises(ValueError, match=f"differs from the model by {difference:.0f}"):
        export.main(export.parse_args([DEMO, "none", str(tmp_path / "m.onnx")]))
    assert (tmp_path / "m.onnx").read_text() == "earlier"
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


def test_a_checkpoint_of_another_number_of_classes_is_refused(tmp_path):
    from mmlisa.checkpoints import save_checkpoint
    from mmlisa.training.building import build_model
    from mmlisa.training.config import load_config

    model = build_model(load_config(DEMO, options={"model.head.num_classes": 7}))
    save_checkpoint({"state_dict": model.state_dict()}, tmp_path / "seven.pth")
    with pytest.raises(ValueError, match=r"in the checkpoint and \[\d+.* in the model"):
        export.main(export.parse_args([DEMO, str(tmp_path / "seven.pth"), str(tmp_path / "m.onnx")]))


def test_a_classifier_has_the_size_of_its_pipeline(tmp_path):
    with pytest.raises(
        ValueError, match=r"--size 96 128: the test pipeline of this classifier gives images of 224x224"
    ):
        export.main(
            export.parse_args(
                ["classifier_ivit_t_300e_imagenet.py", "none", str(tmp_path / "m.onnx"), "--size", "96", "128"]
            )
        )
