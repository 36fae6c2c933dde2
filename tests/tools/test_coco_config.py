"""The shipped COCO config itself, on a small folder of COCO's own layout: two iterations and an evaluation."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mmlisa.datasets.demo import make_coco_layout

ROOT = Path(__file__).parents[2]
CONFIG = "configs/mask_rcnn_hylisanet_s_1x_coco.py"


@pytest.fixture(scope="module")
def coco(tmp_path_factory) -> Path:
    return make_coco_layout(tmp_path_factory.mktemp("coco"), num_images=3, side=160)


def train(coco: Path, work_dir: Path, *options: str) -> subprocess.CompletedProcess:
    data = [f"{split}_dataloader.dataset.data_root={coco}/" for split in ("train", "val", "test")]
    evaluators = [f"{split}_evaluator.ann_file={coco}/annotations/instances_val2017.json" for split in ("val", "test")]
    command = [sys.executable, "tools/train.py", CONFIG, "--work-dir", str(work_dir), "--cfg-options"]
    few = ["train_cfg.max_epochs=1", "train_dataloader.batch_size=1", "val_dataloader.dataset.indices=1"]
    loaders = [f"{split}_dataloader.num_workers=0" for split in ("train", "val")]
    command += [*data, *evaluators, *few, *loaders, "default_hooks.logger.interval=1", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, env=os.environ)


def test_two_iterations_and_an_evaluation(coco, tmp_path):
    done = train(coco, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    entries = [json.loads(line) for line in next(tmp_path.glob("*/vis_data/2*.json")).read_text().splitlines()]
    assert [entry["step"] for entry in entries if "loss" in entry] == [1, 2]
    assert "coco/segm_mAP" in entries[-1]
    assert (tmp_path / "epoch_1.pth").exists()


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("train_dataloader.dataset.ann_file=annotations/none.json", "annotation file .*none.json does not exist"),
        ("train_dataloader.dataset.metainfo.classes=(tabby,cat)", r"lacks 1 of the dataset's 2 classes: \['tabby'\]"),
        ("train_dataloader.dataset.data_prefix.img=nowhere/", "nowhere"),
    ],
)
def test_mistakes_in_the_data_are_named(coco, tmp_path, option, message):
    import re

    done = train(coco, tmp_path, option)
    assert done.returncode != 0
    assert re.search(message, done.stderr.splitlines()[-1]), done.stderr[-2000:]
    assert not list(tmp_path.glob("*.pth"))
