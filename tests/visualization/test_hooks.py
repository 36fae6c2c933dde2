"""Which pictures are drawn in validation and in a test, and where they go."""

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from mmpretrain.structures import DataSample
from PIL import Image

from mmlisa.visualization import OverlayHook


@pytest.fixture
def run(tmp_path):
    """A runner as the hook sees it, and two batches of four images: one name in two folders among them."""
    samples = []
    for i in range(8):
        path = tmp_path / f"class{i % 2}" / f"{i // 2}.jpg"
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", (40, 30), (10 * i, 0, 0)).save(path)
        sample = DataSample(metainfo={"img_path": str(path)})
        samples.append(sample.set_gt_label(i % 2).set_pred_label(0).set_pred_score(torch.tensor([0.7, 0.3])))
    loader = SimpleNamespace(dataset=SimpleNamespace(metainfo={"classes": ("cat", "cup")}))
    drawn = []
    visualizer = SimpleNamespace(add_image=lambda name, image, step: drawn.append((name, image.shape, step)))
    runner = SimpleNamespace(val_dataloader=loader, test_dataloader=loader, visualizer=visualizer, iter=400)
    batches = [(torch.zeros(4, 3, 8, 8), samples[:4]), (torch.zeros(4, 3, 8, 8), samples[4:])]
    return runner, batches, drawn


def test_every_third_image_of_a_validation_goes_to_the_backends(run):
    runner, batches, drawn = run
    hook = OverlayHook(interval=3)
    for _ in range(2):
        hook.before_val_epoch(runner)
        for i, (inputs, outputs) in enumerate(batches):
            hook.after_val_iter(runner, i, {"inputs": inputs}, outputs)
    assert [(name, step) for name, _, step in drawn] == [("0", 400), ("1", 400), ("3", 400)] * 2
    (shape,) = {shape for _, shape, _ in drawn}
    assert shape[1] == 640
    assert shape[0] > 480, "annotation and prediction below the picture"


def test_all_of_a_test_go_into_the_folder(run, tmp_path):
    runner, batches, drawn = run
    hook = OverlayHook(interval=3, test_out_dir=str(tmp_path / "shown"))
    for i, (inputs, outputs) in enumerate(batches):
        views = [{"inputs": inputs}] * 2  # of test-time augmentation
        hook.after_test_iter(runner, i, views if i else {"inputs": inputs}, outputs)
    names = sorted(path.name for path in (tmp_path / "shown").iterdir())
    assert names == sorted(f"{i}{end}.png" for i in range(4) for end in ("", "_2"))
    with Image.open(tmp_path / "shown" / "3_2.png") as picture:
        assert np.asarray(picture)[100, 100].tolist() == [70, 0, 0], "red, as the file"
    assert not drawn


def test_hooks_exports_and_checkpoints_need_neither_supervision_nor_matplotlib():
    code = """
import sys

sys.modules |= dict.fromkeys(("supervision", "matplotlib"))
import mmlisa.export
import mmlisa.inference.exported
import mmlisa.inference.predictor
import mmlisa.inference.tiled
from mmlisa.registry import HOOKS

HOOKS.get("mmlisa.TrainingCurvesHook")
"""
    subprocess.run([sys.executable, "-c", code], check=True)
