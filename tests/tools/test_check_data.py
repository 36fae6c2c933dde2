"""``mmlisa check-data`` as a user runs it: what it prints, draws and returns."""

import cv2
import pytest

from mmlisa import cli
from mmlisa.datasets.demo import make_demo

pytest.importorskip("mmdet")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return make_demo(tmp_path_factory.mktemp("data") / "demo", num_images={"train": 6, "val": 4}, progress=False)


def check(config, root, monkeypatch, *words):
    monkeypatch.setattr(cli, "_program", None)
    monkeypatch.setattr("sys.argv", [])
    options = [f"{split}_dataloader.dataset.data_root={root}" for split in ("train", "val", "test")]
    with pytest.raises(SystemExit) as end:
        cli.main(["check-data", config, *words, "--cfg-options", *options])
    return end.value.code


@pytest.mark.parametrize(
    ("config", "unit"),
    [
        ("mask_rcnn_hylisanet_demo.py", "objects"),
        ("semantic_fpn_hylisanet_demo.py", "pixels"),
        ("classifier_hylisanet_demo.py", "images"),
    ],
)
def test_good_data_are_summarised_and_drawn(root, tmp_path, monkeypatch, capsys, config, unit):
    assert check(config, root, monkeypatch, "--draw", "3", "--out-dir", str(tmp_path)) == 0
    printed = capsys.readouterr().out
    assert f"train: {unit} per class: " in printed
    assert f"val: {unit} per class: " in printed
    assert printed.rstrip().endswith("nothing wrong")
    for split in ("train", "val"):
        drawings = sorted((tmp_path / split).glob("*.png"))
        assert len(drawings) == 3
        assert len({cv2.imread(str(path)).tobytes() for path in drawings}) == 3


def test_problems_set_the_exit_code(root, tmp_path, monkeypatch, capsys):
    import shutil

    other = tmp_path / "demo"
    shutil.copytree(root, other)
    first = next((other / "cls" / "val" / "cat").glob("*.jpg"))
    first.write_bytes(next((other / "cls" / "train" / "cat").glob("*.jpg")).read_bytes())
    assert check("classifier_hylisanet_demo.py", other, monkeypatch) == 1
    printed = capsys.readouterr().out
    assert "the same image is in the training data" in printed
    assert printed.rstrip().endswith("1 problems")


def test_a_negative_number_of_drawings_is_refused_at_once(root, monkeypatch, capsys):
    assert check("mask_rcnn_hylisanet_demo.py", root, monkeypatch, "--draw", "-1") == 2
    assert "--draw is '-1'" in capsys.readouterr().err
