"""Kills ``mmlisa fit`` at random moments and starts it again: ``python tests/fit/kills.py``, some minutes, not part of the suite.

The killed run must end with the weights, the result and the untouched data of a run that was not killed, and its config alone
must give the same weights.
"""

import argparse
import hashlib
import json
import random
import re
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from helpers import folders  # noqa: E402


def start(data: Path, work_dir: Path) -> subprocess.Popen:
    options = ["--epochs", "3", "--size", "64", "--resume", "--work-dir", str(work_dir)]
    log = work_dir.with_suffix(".log").open("a")
    return subprocess.Popen([sys.executable, "tools/fit.py", str(data), *options], cwd=ROOT, stdout=log, stderr=log)


def checksums(folder: Path) -> dict[Path, str]:
    return {path: hashlib.md5(path.read_bytes()).hexdigest() for path in folder.rglob("*") if path.is_file()}


def result(work_dir: Path) -> str:
    return re.search(r"\*\*(.+)\*\*", (work_dir / "report.md").read_text()).group(1)


def are_equal(one: Path, other: Path) -> bool:
    """Whether the best checkpoints of two trainings have the same weights, bit for bit."""
    (one,), (other,) = one.glob("best_*.pth"), other.glob("best_*.pth")
    one, other = (torch.load(path, weights_only=False)["state_dict"] for path in (one, other))
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def kill_and_compare(root: Path, kills: int, seed: int) -> None:
    data, whole, killed, rng = root / "data", root / "whole", root / "killed", random.Random(seed)
    folders.write_classes(data)
    before = checksums(data)
    began = time.perf_counter()
    assert start(data, whole).wait() == 0, whole.with_suffix(".log").read_text()
    seconds = time.perf_counter() - began
    for _ in range(kills + 10):
        process = start(data, killed)
        try:
            code = process.wait(rng.uniform(0.03, 0.4) * seconds if kills > 0 else None)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
            kills -= 1
        state = killed / "run.json"
        print(code, *(json.loads(state.read_text())["done"] if state.exists() else ()), flush=True)
        log = killed.with_suffix(".log").read_text()
        assert "Traceback" not in log, log
        if code == 0:
            break
    assert are_equal(killed / "train", whole / "train")
    assert result(killed) == result(whole)
    assert checksums(data) == before
    again = [sys.executable, "tools/train.py", str(whole / "config.py"), "--work-dir", str(root / "again")]
    subprocess.run(again, cwd=ROOT, check=True, capture_output=True)
    assert are_equal(root / "again", whole / "train")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with TemporaryDirectory() as folder:
        kill_and_compare(Path(folder), arguments.kills, arguments.seed)
    print("equal")
