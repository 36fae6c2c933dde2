"""Shipped configs on demo objects in the layouts of COCO, ADE20K and ImageNet: a few iterations and an evaluation.

tests/configs/test_recipes.py and test_library_recipes.py build the model of every config.
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from mmdet.datasets import CocoDataset

from helpers.training import ROOT
from mmlisa import config_path
from mmlisa.datasets.demo import CLASSES, make_imagenet_layout, make_scenes, write_ade20k, write_coco

pytestmark = pytest.mark.nightly

EPOCH = ["train_cfg.max_epochs=1", "train_dataloader.batch_size=1"]
ITERATIONS = ["train_cfg.max_iters=2", "train_cfg.val_interval=2", "default_hooks.checkpoint.interval=2"]
# Crops of 128 pixels instead of 512 take a sixteenth of the time.
ITERATIONS += ["train_dataloader.dataset.pipeline.3.crop_size=(128,128)", "model.data_preprocessor.size=(128,128)"]
ITERATIONS += ["train_dataloader.batch_size=2"]
# Layout, options, training steps, checkpoint, metric.
CASES = {
    # A network of two iterations is sure of nothing, and without any detection there would be no metrics.
    "mask_rcnn_hylisanet_s_1x_coco.py": (
        "coco", [*EPOCH, "model.test_cfg.rcnn.score_thr=0"], 2, "epoch_1.pth", "coco/segm_mAP"
    ),
    "semantic_fpn_hylisanet_s_80k_ade20k.py": ("ade", ITERATIONS, 2, "iter_2.pth", "mIoU"),
    "upernet_hylisanet_s_160k_ade20k.py": ("ade", ITERATIONS, 2, "iter_2.pth", "mIoU"),
    "classifier_hylisanet_s_300e_imagenet.py": ("imagenet", EPOCH, 8, "epoch_1.pth", "accuracy/top1"),
}  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("data")
    categories = [dict(id=i, name=name) for i, name in enumerate(CocoDataset.METAINFO["classes"], 1)]
    for split in ("train", "val"):
        scenes = list(make_scenes(split, 3, side=160))
        annotations, images = f"annotations/instances_{split}2017.json", f"{split}2017"
        write_coco(root / "coco" / annotations, root / "coco" / images, scenes, categories, range(1, 1 + len(CLASSES)))
        write_ade20k(root / "ade", split, scenes, np.arange(1, 2 + len(CLASSES), dtype=np.uint8))
    make_imagenet_layout(root / "imagenet", 1)
    return root


@pytest.mark.parametrize("config", CASES)
def test_iterations_and_an_evaluation(config, data, tmp_path):
    layout, length, steps, checkpoint, metric = CASES[config]
    options = [f"{split}_dataloader.dataset.data_root={data / layout}/" for split in ("train", "val", "test")]
    options += [f"{split}_dataloader.num_workers=0" for split in ("train", "val")]
    if layout == "coco":
        file = data / layout / "annotations" / "instances_val2017.json"
        options += [f"{split}_evaluator.ann_file={file}" for split in ("val", "test")]
    options += ["val_dataloader.dataset.indices=1", "default_hooks.logger.interval=1", *length]
    command = [sys.executable, "tools/train.py", config_path(config), "--work-dir", tmp_path, "--cfg-options", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    entries = [json.loads(line) for line in next(tmp_path.glob("*/vis_data/2*.json")).read_text().splitlines()]
    losses = {entry["step"]: entry["loss"] for entry in entries if "loss" in entry}
    assert list(losses) == list(range(1, steps + 1))
    assert all(0 < loss < 100 for loss in losses.values())
    assert metric in entries[-1]
    assert (tmp_path / checkpoint).exists()
