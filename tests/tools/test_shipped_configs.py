"""Every shipped config builds; on small folders in their data's own layouts, some train for a few iterations and evaluate."""

import json
from importlib import import_module
from pathlib import Path

import pytest
import torch

from helpers.layouts import make_ade20k_layout, make_coco_layout
from helpers.training import EPOCH, ROOT, train
from mmlisa.datasets.demo import make_imagenet_layout
from mmlisa.training.building import build_model
from mmlisa.training.config import load_config

CONFIGS = sorted(path for path in ROOT.glob("configs/**/*.py") if "_base_" not in path.parts)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_config_builds(path):
    cfg = load_config(str(path))
    import_module(f"{cfg.default_scope}.models")  # outside of the meta device, because importing creates tensors, too
    with torch.device("meta"):
        build_model(cfg)


ITERATIONS = ["train_cfg.max_iters=2", "train_cfg.val_interval=2", "default_hooks.checkpoint.interval=2"]
# Crops of 128 pixels instead of 512 take a sixteenth of the time.
ITERATIONS += ["train_dataloader.dataset.pipeline.3.crop_size=(128,128)", "model.data_preprocessor.size=(128,128)"]
# Layout, options, training steps, checkpoint, metric.
CASES = {
    # A network of two iterations is sure of nothing, and without any detection there would be no metrics.
    "mask_rcnn_hylisanet_s_1x_coco.py": (
        "coco",
        [*EPOCH, "model.test_cfg.rcnn.score_thr=0"],
        2,
        "epoch_1.pth",
        "coco/segm_mAP",
    ),
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


@pytest.mark.nightly
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
