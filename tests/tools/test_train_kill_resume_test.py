"""Each task for real, as a user runs it: train, kill, resume, test."""

import json
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from helpers.training import ROOT, SHORT, history, scores

pytestmark = pytest.mark.slow

TASKS = {
    "mask_rcnn_hylisanet_demo": [],
    "semantic_fpn_hylisanet_demo": [],
    "classifier_hylisanet_demo": [],
    # So young a PicoDet finds nothing, and nothing found is no metric.
    "picodet_castling_lcnet_demo": ["model.test_cfg.score_thr=0.0"],
}


def command(tool: str, config: str, *args: object) -> list[str]:
    options = [*SHORT, *TASKS[Path(config).stem]]
    return [sys.executable, f"tools/{tool}.py", config, *map(str, args), "--cfg-options", *options]


def run(tool: str, config: str, *args: object, options: tuple[str, ...] = ()) -> str:
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command(tool, config, *args), *options], cwd=ROOT, env=env, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


# The run that is killed loads its data in two processes, the other one in none.
WORKERS = ("train_dataloader.num_workers=2", "train_dataloader.persistent_workers=True")


def train_until_killed(config: str, work_dir: Path, checkpoint: str) -> None:
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [*command("train", config, "--work-dir", work_dir), *WORKERS],
        cwd=ROOT,
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 600
    while (
        checkpoint not in (work_dir / "last_checkpoint").read_text()
        if (work_dir / "last_checkpoint").exists()
        else True
    ):
        assert process.poll() is None, "training ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()


@pytest.mark.parametrize("task", TASKS)
def test_train_kill_resume_test(task, tmp_path):
    config = f"configs/{task}.py"
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    out = run("train", config, "--work-dir", whole)
    (best,) = whole.glob("best_*.pth")  # one, besides the last two
    assert re.search(rf"checkpoint  {best} \(best: \S+\)$", out, re.MULTILINE), out
    assert f"python tools/infer.py {whole / Path(config).name} {best} IMAGE" in out  # the config with the options
    assert len(list(whole.glob("*.pth"))) <= 3
    noise = ("System environment", "Config:", "Could not import", "faster_coco_eval", "paramwise_options")
    assert not [line for line in noise if line in out], out
    train_until_killed(config, killed, "iter_4")
    assert not (killed / "iter_6.pth").exists()
    run("train", config, "--work-dir", killed, "--resume", options=WORKERS)
    assert (killed / "iter_6.pth").exists()

    losses, metrics = history(whole)
    assert sorted(losses) == [1, 2, 3, 4, 5, 6]
    assert metrics
    assert sorted(history(killed)[0]) == sorted(losses)
    assert list(whole.glob("*/curves.png"))
    assert list(whole.glob("*/vis_data/vis_image/*.png"))

    out = run(
        "test", config, whole / "iter_6.pth", "--work-dir", tmp_path / "test", "--out", tmp_path / "predictions.pkl"
    )
    predictions = pickle.loads((tmp_path / "predictions.pkl").read_bytes())
    assert predictions
    assert all("seg_logits" not in prediction for prediction in predictions), "hundreds of MB per image"
    (tested,) = (tmp_path / "test").glob("*/*.json")
    assert not list((tmp_path / "test").rglob("*.png")), "pictures only with --show-dir"
    assert scores(json.loads(tested.read_text().splitlines()[-1])) == metrics, out
