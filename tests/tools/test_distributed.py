"""Two gloo processes on one machine: MMEngine's launcher as README shows it."""

import os
import subprocess
import sys

import pytest

from helpers.training import ROOT, SHORT, history

pytestmark = pytest.mark.slow


# PicoDet: castled with its auxiliary branch, which goes after the first of the iterations. RetinaNet: its pyramid starts at
# stride 8, and a norm without a gradient would stop the second iteration.
@pytest.mark.parametrize(
    "config", ["mask_rcnn_hylisanet_demo.py", "picodet_castling_lcnet_demo.py", "retinanet_flatten_swin_demo.py"]
)
def test_two_processes(config, tmp_path):
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc_per_node=2",
        "--standalone",  # on a free port
        "tools/train.py",
    ]
    command += [f"configs/{config}", "--launcher", "pytorch", "--verbose", "--work-dir", str(tmp_path)]
    command += [
        "--cfg-options",
        *SHORT,
        "train_cfg.max_iters=2",
        "train_cfg.val_interval=2",
        "train_dataloader.batch_size=2",
    ]
    if "castling" in config:
        # Two iterations make it sure of nothing, and without any detection there would be no metrics.
        command += ["custom_hooks.2.drop_at=0.9", "model.test_cfg.score_thr=0"]
    if "retinanet" in config:
        command += ["model.test_cfg.score_thr=0"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Distributed launcher: pytorch" in done.stdout + done.stderr
    losses, metrics = history(tmp_path)
    assert sorted(losses) == [1, 2]
    assert "coco/bbox_mAP" in metrics
    assert (tmp_path / "iter_2.pth").exists()
