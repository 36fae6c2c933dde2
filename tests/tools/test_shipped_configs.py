"""The shipped configs themselves, on small folders in their data's own layouts: a few iterations and an evaluation."""

import json
import re
from pathlib import Path

import pytest

from helpers.layouts import make_ade20k_layout, make_coco_layout
from helpers.training import EPOCH, train
from mmlisa.datasets.demo import make_imagenet_layout

pytestmark = pytest.mark.slow

ITERATIONS = ["train_cfg.max_iters=2", "train_cfg.val_interval=2", "default_hooks.checkpoint.interval=2"]
# Crops of 128 pixels instead of 512 take a sixteenth of the time.
ITERATIONS += ["train_dataloader.dataset.pipeline.3.crop_size=(128,128)", "model.data_preprocessor.size=(128,128)"]
COCO = "mask_rcnn_hylisanet_s_1x_coco.py"
# Layout, options, training steps, checkpoint, metric.
CASES = {
    # A network of two iterations is sure of nothing, and without any detection there would be no metrics.
    COCO: ("coco", [*EPOCH, "model.test_cfg.rcnn.score_thr=0"], 2, "epoch_1.pth", "coco/segm_mAP"),
    "semantic_fpn_hylisanet_s_80k_ade20k.py": ("ade", ITERATIONS, 2, "iter_2.pth", "mIoU"),
    "upernet_hylisanet_s_160k_ade20k.py": ("ade", ITERATIONS, 2, "iter_2.pth", "mIoU"),
    "classifier_hylisanet_s_300e_imagenet.py": ("imagenet", EPOCH, 8, "epoch_1.pth", "accuracy/top1"),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("data")
    make_coco_layout(root / "coco", num_images=3, side=160)
    make_ade20k_layout(root / "ade", num_images=3, side=160)
    make_imagenet_layout(root / "imagenet", 1)
    return root


@pytest.mark.parametrize("config", CASES)
def test_iterations_and_an_evaluation(config, folders, tmp_path):
    layout, length, steps, checkpoint, metric = CASES[config]
    done = train(config, folders / layout, tmp_path, *length)
    assert done.returncode == 0, done.stdout + done.stderr
    entries = [json.loads(line) for line in next(tmp_path.glob("*/vis_data/2*.json")).read_text().splitlines()]
    losses = {entry["step"]: entry["loss"] for entry in entries if "loss" in entry}
    assert list(losses) == list(range(1, steps + 1))
    assert all(0 < loss < 100 for loss in losses.values())
    assert metric in entries[-1]
    assert (tmp_path / checkpoint).exists()


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("train_dataloader.dataset.ann_file=annotations/none.json", "annotation file .*none.json does not exist"),
        ("train_dataloader.dataset.metainfo.classes=(tabby,cat)", r"lacks 1 of the dataset's 2 classes: \['tabby'\]"),
        ("train_dataloader.dataset.data_prefix.img=nowhere/", "nowhere"),
    ],
)
def test_mistakes_in_the_data_are_named(folders, tmp_path, option, message):
    done = train(COCO, folders / "coco", tmp_path, *EPOCH, option)
    assert done.returncode != 0
    assert re.search(message, done.stderr.splitlines()[-1]), done.stderr[-2000:]
    assert not list(tmp_path.glob("*.pth"))
