"""What a new user does wrong, by the command as typed: one line that says what, and an exit code that is not 0."""

import re
import sys

import cv2
import numpy as np
import pytest
import torch
from mmengine.registry import MODELS, DefaultScope

from mmlisa import cli, config_path
from mmlisa.training.config import load_config

CLASSIFIER, DETECTOR = "classifier_hylisanet_demo.py", "mask_rcnn_hylisanet_demo.py"
ONE_ITERATION = ["train_cfg.max_iters=1", "train_cfg.val_interval=1"]
ONE_ITERATION += [f"{split}_dataloader.dataset.indices=2" for split in ("train", "val", "test")]
ONE_ITERATION += ["train_dataloader.batch_size=2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A checkpoint of the demo classifier, and pictures: whole, gray, of 16 bits, with alpha, and one cut short."""
    folder = tmp_path_factory.mktemp("mistakes")
    cfg = load_config(config_path(CLASSIFIER))
    with DefaultScope.overwrite_default_scope("mmpretrain"):
        torch.save({"state_dict": MODELS.build(cfg.model).state_dict()}, folder / "eight.pth")
    rng = np.random.default_rng(0)
    for kind, names in {"good": ("whole.jpg",), "bad": ("a.jpg", "cut.jpg", "z.jpg")}.items():
        (folder / kind).mkdir()
        for name in names:
            cv2.imwrite(str(folder / kind / name), rng.integers(0, 255, (60, 80, 3), dtype=np.uint8))
    cut = folder / "bad" / "cut.jpg"
    cut.write_bytes(cut.read_bytes()[:700])
    (folder / "clip.mp4").write_bytes(b"no video")
    for name, shape, kind in (("gray", (60, 80), "u1"), ("deep", (60, 80), "u2"),
                              ("alpha", (60, 80, 4), "u1")):  # fmt: skip
        cv2.imwrite(str(folder / "good" / f"{name}.png"), rng.integers(0, 255, shape).astype(kind))
    return folder


@pytest.fixture
def run(monkeypatch, capsys, folder, tmp_path):
    """Runs ``mmlisa COMMAND …`` in this process; gives its exit code, output and errors."""
    monkeypatch.setattr(cli, "_program", None)
    monkeypatch.setattr(sys, "argv", sys.argv)

    def run(*words):
        words = [str(word).format(folder=folder, out=tmp_path) for word in words]
        try:
            cli.main(words)
            code = 0
        except SystemExit as end:
            code = end.code or 0
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


_INFER = ("infer", CLASSIFIER, "{folder}/eight.pth")
# Two runs of one name in a second would share MMEngine's visualizer, and with it the folder of the first.
_TRAIN = ("train", DETECTOR, "--work-dir", "{out}", "--cfg-options", "experiment_name={out.name}")
MISTAKES = {
    "classes of another checkpoint": (
        (*_INFER, "{folder}/good", "--out-dir", "{out}/x", "--cfg-options", "model.head.num_classes=3"),
        r"is \[8, \d+\] in the checkpoint and \[3, \d+\] in the model",
    ),
    "the same in a test": (
        ("test", CLASSIFIER, "{folder}/eight.pth", "--work-dir", "{out}", "--cfg-options", "model.head.num_classes=3"),
        r"is \[8, \d+\] in the checkpoint and \[3, \d+\] in the model",
    ),
    "a misspelt option": ((*_TRAIN, "optim_wraper.optimizer.lr=1"), r"did you mean optim_wrapper\.optimizer\.lr\?"),
    "no ADE20K": (
        ("train", "semantic_fpn_hylisanet_s_80k_ade20k.py", "--work-dir", "{out}", "--cfg-options",
         "train_dataloader.dataset.data_root={out}/none"),
        r"folder .*/none/images/training does not exist.*train_dataloader\.dataset\.",
    ),
    "no ImageNet": (
        ("train", "imagenet/classifier_hylisanet_s_300e_imagenet.py", "--work-dir", "{out}", "--cfg-options",
         "train_dataloader.dataset.data_root={out}/none"),
        r"folder .*/none.* does not exist.*train_dataloader\.dataset\.",
    ),
    "no neck": ((*_TRAIN, "model.neck=None"), r"no neck.*model\.neck=dict\(type='FPN', in_channels=\["),
    "a neck too short": ((*_TRAIN, "model.neck.in_channels=[32,64]"), r"Set model\.neck\.in_channels=\[32, 64, 128, 160\]"),
    "a misspelt type": ((*_TRAIN, "model.backbone.type=LisaNet"), r"did you mean mmlisa\.LiSANet"),
    "no such config": (("train", "mask_rcnn_hylisanet_dmo.py"), r"_dmo\.py' does not exist.*mask_rcnn_hylisanet_demo"),
    "no such checkpoint": (("infer", CLASSIFIER, "{out}/none.pth", "{folder}/good"), r"none\.pth' does not exist"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line(run, mistake):
    words, message = MISTAKES[mistake]
    code, _, errors = run(*words)
    assert code == 2
    (line,) = [line for line in errors.splitlines() if line.startswith("error: ")]
    assert re.search(message, line), line
    assert "Traceback" not in errors


def test_debug_shows_where(run):
    with pytest.raises(ValueError, match="did you mean"):
        run(*_TRAIN, "optim_wraper.optimizer.lr=1", "--debug")


def test_one_bad_picture_does_not_end_the_rest(run, tmp_path):
    code, _, errors = run(*_INFER, "{folder}/bad", "{folder}/clip.mp4", "--out-dir", "{out}")
    assert code == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "z.png"]
    assert "2 of the inputs could not be read" in errors
    assert "cut.jpg' cannot be read" in errors
    assert "clip.mp4 cannot be read" in errors


def test_unusual_pictures_work(run, tmp_path):
    code, out, _ = run(*_INFER, "{folder}/good", "--out-dir", "{out}")
    assert code == 0
    assert len(list(tmp_path.iterdir())) == 4
    assert out.count(" -> ") == 4


def test_a_test_draws_nothing_unasked(run, tmp_path):
    code, _, errors = run(
        "test", CLASSIFIER, "{folder}/eight.pth", "--work-dir", "{out}", "--cfg-options", *ONE_ITERATION
    )
    assert code == 0, errors
    assert not list(tmp_path.rglob("*.png"))


def test_training_warns_of_other_shapes(run, tmp_path):
    options = [*ONE_ITERATION, "load_from={folder}/eight.pth", "model.head.num_classes=9"]
    code, out, errors = run("train", CLASSIFIER, "--work-dir", "{out}", "--cfg-options", *options)
    assert code == 0, errors
    assert "[8, " in out + errors
    assert "[9, " in out + errors
