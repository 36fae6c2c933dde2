"""Each task as a user runs it: train, kill or terminate, resume, test."""

import json
import pickle
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from helpers.toy_runner import history, scores

ROOT = Path(__file__).parents[2]
# A few images and iterations of each demo config; a checkpoint every second iteration.
SHORT = [
    "train_cfg.max_iters=6",
    "train_cfg.val_interval=6",
    "default_hooks.checkpoint.interval=2",
    "default_hooks.logger.interval=1",
    "log_processor.window_size=1",
    "train_dataloader.dataset.indices=16",
    "val_dataloader.dataset.indices=6",
    "test_dataloader.dataset.indices=6",
]
pytestmark = pytest.mark.nightly

TASKS = {
    "mask_rcnn_hylisanet_demo": signal.SIGTERM,
    "semantic_fpn_hylisanet_demo": signal.SIGKILL,
    "classifier_hylisanet_demo": signal.SIGTERM,
    "picodet_castling_lcnet_demo": signal.SIGKILL,
}
# So young a PicoDet finds nothing, and nothing found is no metric.
OPTIONS = {"picodet_castling_lcnet_demo": ["model.test_cfg.score_thr=0.0"]}
WORKERS = ["train_dataloader.num_workers=2", "train_dataloader.persistent_workers=True"]


def command(tool: str, task: str, *words: object) -> list[str]:
    options = ["--cfg-options", *SHORT, *WORKERS, *OPTIONS.get(task, [])]
    return [sys.executable, f"tools/{tool}.py", f"configs/{task}.py", *map(str, words), *options]


def run(*words: object) -> str:
    done = subprocess.run(command(*words), cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def train_until(task: str, work_dir: Path, checkpoint: str, number: signal.Signals) -> int:
    """Train until a checkpoint is written, send a signal, and return the exit status."""
    process = subprocess.Popen(
        command("train", task, "--work-dir", work_dir), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline, last = time.monotonic() + 600, work_dir / "last_checkpoint"
    while not (last.exists() and checkpoint in last.read_text()):
        assert process.poll() is None, "training ended before the signal"
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(number)
    return process.wait()


@pytest.mark.parametrize("task", TASKS)
def test_train_kill_resume_test(task, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    work_dir = tmp_path / "run"
    status = train_until(task, work_dir, "iter_2", TASKS[task])
    assert status == (-9 if TASKS[task] == signal.SIGKILL else 128 + signal.SIGTERM)
    assert not (work_dir / "iter_6.pth").exists()
    out = run("train", task, "--work-dir", work_dir, "--resume")
    (best,) = work_dir.glob("best_*.pth")
    assert re.search(rf"checkpoint  {best} \(best: \S+\)$", out, re.MULTILINE), out
    losses, metrics = history(work_dir)
    assert sorted(losses) == [1, 2, 3, 4, 5, 6]
    assert list(work_dir.glob("*/curves.png"))
    assert list(work_dir.glob("*/vis_data/vis_image/*.png"))

    out = run("test", task, work_dir / "iter_6.pth", "--work-dir", tmp_path / "test", "--out", tmp_path / "found.pkl")
    predictions = pickle.loads((tmp_path / "found.pkl").read_bytes())
    assert predictions
    assert all("seg_logits" not in prediction for prediction in predictions), "hundreds of MB per image"
    (tested,) = (tmp_path / "test").glob("*/*.json")
    assert not list((tmp_path / "test").rglob("*.png")), "pictures only with --show-dir"
    assert scores(json.loads(tested.read_text().splitlines()[-1])) == metrics, out
