"""Mistakes in the arguments of ``mmlisa export``."""

import pytest

import export

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
        (["model.onnx", "--raw", "--uint8"], "--uint8 needs a file with results: leave out --raw and --backbone-only"),
        (["model.onnx", "--backbone-only", "--uint8"], "--uint8 needs a file with results"),
    ],
)
def test_mistakes(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        export.parse_args([*FILES, *arguments])
    assert message in " ".join(capsys.readouterr().err.split())


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
