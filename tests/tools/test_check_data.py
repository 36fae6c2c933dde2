"""``mmlisa check-data`` as a user runs it: what it prints, draws and returns."""

import shutil

import cv2
import numpy as np
import pytest

from mmlisa import cli
from mmlisa.datasets.demo import make_demo
from mmlisa.fit import checking
from mmlisa.visualization import overlays

pytest.importorskip("mmdet")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return make_demo(tmp_path_factory.mktemp("data") / "demo", num_images={"train": 6, "val": 4}, progress=False)


def check(config, root, monkeypatch, *words, more=None):
    monkeypatch.setattr(cli, "_program", None)
    monkeypatch.setattr("sys.argv", [])
    options = [f"{split}_dataloader.dataset.data_root={root}" for split in ("train", "val", "test")]
    with pytest.raises(SystemExit) as end:
        cli.main(["check-data", config, *words, "--cfg-options", *options, *[more] * bool(more)])
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


def test_images_of_floating_point_are_drawn(root, tmp_path, monkeypatch):
    words = ["--draw", "1", "--split", "train", "--out-dir", str(tmp_path)]
    option = "train_dataloader.dataset.pipeline.0.to_float32=True"
    assert check("mask_rcnn_hylisanet_demo.py", root, monkeypatch, *words, more=option) == 0
    assert cv2.imread(str(tmp_path / "train" / "000.png")).std() > 10


def test_boxes_are_drawn_where_the_objects_are(root, tmp_path, monkeypatch):
    """The test pipeline resizes images before it loads boxes, which are those of the file."""
    monkeypatch.setattr(
        overlays, "draw_truth", lambda picture, sample, classes: seen.append((picture, sample)) or picture
    )
    seen = []
    scale = "val_dataloader.dataset.pipeline.1.scale=(320,320)"
    check(
        "mask_rcnn_hylisanet_demo.py",
        root,
        monkeypatch,
        "--draw",
        "3",
        "--split",
        "val",
        "--out-dir",
        str(tmp_path),
        more=scale,
    )
    assert len(seen) == 3
    for picture, sample in seen:
        assert picture.shape[:2] == sample.ori_shape != sample.img_shape
        assert np.array_equal(picture, cv2.imread(sample.img_path)[..., ::-1])


def test_the_validation_is_compared_with_the_training_in_any_order(root, monkeypatch, capsys):
    monkeypatch.setattr(checking, "compare_classes", lambda train, other: "label 0 is 'cat' in the training data")
    assert check("classifier_hylisanet_demo.py", root, monkeypatch, "--split", "val", "train") == 1
    assert "val: label 0 is 'cat' in the training data" in capsys.readouterr().out


def test_problems_set_the_exit_code(root, tmp_path, monkeypatch, capsys):
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
