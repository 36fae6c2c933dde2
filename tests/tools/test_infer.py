"""What ``mmlisa infer`` leaves when it is interrupted."""

import json
from pathlib import Path

import pytest

import infer
from mmlisa.deploy import inference


@pytest.mark.parametrize("number", [0, 2])
def test_predictions_before_ctrl_c_are_kept(tmp_path, monkeypatch, number):
    file = tmp_path / "results.json"
    file.write_text("[1]")

    def predictions(*_, **__):
        for index in range(number):
            yield inference.Result(Path(f"{index}.jpg"), Path("out.jpg"), "nothing found", {"instances": []})
        raise KeyboardInterrupt

    monkeypatch.setattr(inference, "predict_pictures", predictions)
    monkeypatch.setattr(inference, "Predictor", lambda *_, **__: None)
    arguments = ["classifier_hylisanet_demo.py", "none", str(tmp_path), "--json", str(file)]
    with pytest.raises(KeyboardInterrupt):
        infer.main(infer.parse_args(arguments))
    expected = [{"source": f"{index}.jpg", "instances": []} for index in range(number)]
    assert json.loads(file.read_text()) == (expected or [1])


@pytest.mark.parametrize("words", [["--device", "cuda"], ["--cfg-options", "a=1"]])
def test_an_exported_file_has_no_device_and_no_config(words, capsys):
    with pytest.raises(SystemExit):
        infer.parse_args(["model.onnx", "image.png", *words])
    assert "an exported file has no config and runs on the CPU; leave them out" in " ".join(
        capsys.readouterr().err.split()
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["config.py", "model.onnx", "image.png"],
            "'model.onnx' is an exported file, which needs no config: leave CONFIG",
        ),
        (
            ["config.py", "best.pth", "image.png", "--tile", "0"],
            "--tile 0 --overlap 0.2: tiles have at least 32 pixels",
        ),
    ],
)
def test_mistakes(words, message, capsys):
    with pytest.raises(SystemExit):
        infer.parse_args(words)
    assert message in " ".join(capsys.readouterr().err.split())
