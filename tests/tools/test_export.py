"""Mistakes of `mmlisa export` are named before PyTorch is imported."""

import pytest

import export

FILES = ["config.py", "none"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["model.pb"], "'model.pb' has the suffix '.pb'; it must be one of .onnx, .pt2"),
        (["missing/model.onnx"], "folder 'missing' of 'model.onnx' does not exist"),
        (["model.onnx", "--size", "16", "64"], "--size 16 64: H and W of at least 32"),
        (["model.onnx", "--size", "64"], "--size 64: H and W"),
        (["model.onnx", "--raw", "--int8", "."], "--int8 needs an .onnx file with results"),
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
