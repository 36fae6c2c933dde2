"""Kills ``mmlisa fit`` at random moments and starts it again: ``python tests/fit/kills.py``, about ten minutes, not in the suite.

The moments are drawn uniformly between the conversion and the report of a run that is not killed. Half of the kills end
``mmlisa fit`` alone, the others its subprocesses too, like a loss of power. The killed run must end with the weights, the
result and the untouched data of the other run, and the config alone must give the same weights.
"""

import argparse
import hashlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from helpers import folders  # noqa: E402


def start(data: Path, work_dir: Path, log: Path) -> subprocess.Popen:
    options = ["--epochs", "3", "--size", "64", "--resume", "--work-dir", str(work_dir)]
    with log.open("w") as file:
        return subprocess.Popen(
            [sys.executable, "tools/fit.py", str(data), *options], cwd=ROOT, stdout=file, stderr=file
        )


def checksums(folder: Path) -> dict[Path, str]:
    return {path: hashlib.md5(path.read_bytes()).hexdigest() for path in folder.rglob("*") if path.is_file()}


def result(work_dir: Path) -> str:
    return re.search(r"\*\*(.+)\*\*", (work_dir / "report.md").read_text()).group(1)


def are_equal(one: Path, other: Path) -> bool:
    """Whether the best checkpoints of two trainings have the same weights, bit for bit."""
    (one,), (other,) = one.glob("best_*.pth"), other.glob("best_*.pth")
    one, other = (torch.load(path, weights_only=False)["state_dict"] for path in (one, other))
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def draw_moments(seconds: dict[str, float], number: int, rng: random.Random) -> list[tuple[str, float]]:
    """Step, and seconds after its beginning, of each kill, in the order of the run."""
    moments = []
    for moment in sorted(rng.uniform(0, sum(seconds.values())) for _ in range(number)):
        for step, length in seconds.items():
            if moment < length:
                moments.append((step, moment))
                break
            moment -= length
    return moments


def descendants(pid: int) -> list[int]:
    children = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return [each for child in children for each in (child, *descendants(child))]


def kill_at(process: subprocess.Popen, log: Path, step: str, seconds: float, *, whole_tree: bool) -> int | None:
    """Kills a run so many seconds after the beginning of a step; returns its exit code if it ended before."""
    while process.poll() is None and f"--- {step} ---" not in log.read_text():
        time.sleep(0.02)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        for pid in [process.pid, *(descendants(process.pid) if whole_tree else ())]:
            os.kill(pid, signal.SIGKILL)
        process.wait()
        return None


def kill_and_compare(root: Path, number: int, seed: int) -> int:
    """Returns the number of kills; fewer than asked for if the last moments come after the end of the run."""
    data, whole, killed, rng = root / "data", root / "whole", root / "killed", random.Random(seed)
    folders.write_classes(data)
    before = checksums(data)
    log = root / "log"
    assert start(data, whole, log).wait() == 0, log.read_text()
    seconds = json.loads((whole / "run.json").read_text())["done"]
    print(seconds, flush=True)
    moments, kills, refused = draw_moments(seconds, number, rng), 0, 0
    while not (killed / "report.html").exists():
        step, offset = moments[0] if moments else ("end", 0)
        process, whole_tree = start(data, killed, log), rng.random() < 0.5
        code = kill_at(process, log, step, offset, whole_tree=whole_tree)
        text = log.read_text()
        assert "Traceback" not in text, text
        print(step, f"{offset:.1f} s", "whole tree" if whole_tree else "fit alone", "->", code, flush=True)
        if code is None:
            kills += 1
            moments.pop(0)
        elif code:  # such as: another process still trains there
            print(text.splitlines()[-1], flush=True)
            assert text.splitlines()[-1].startswith("error: "), text
            refused += 1
            assert refused < 20, text
            time.sleep(2)
    assert start(data, killed, log).wait() == 0, log.read_text()  # the last kill may have come before the end
    assert are_equal(killed / "train", whole / "train")
    assert result(killed) == result(whole)
    assert checksums(data) == before
    again = [sys.executable, "tools/train.py", str(whole / "config.py"), "--work-dir", str(root / "again")]
    subprocess.run(again, cwd=ROOT, check=True, capture_output=True)
    assert are_equal(root / "again", whole / "train")
    return kills


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with TemporaryDirectory() as folder:
        kills = kill_and_compare(Path(folder), arguments.kills, arguments.seed)
    print(f"{kills} kills: equal")
