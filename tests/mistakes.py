"""Measure how long a newcomer's mistakes take to be reported, in wall-clock and processor seconds.

    python tests/mistakes.py [--limit 2]

Each mistake is made by the command as a user types it, in a new process. The exit status is 1 if a command reports no error in
one line, or takes longer than the limit. Run it on a quiet machine.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CONFIG = "mask_rcnn_hylisanet_demo.py"
MISTAKES = {
    "config does not exist": "check-data nosuch.py",
    "config does not exist, in training": "train nosuch.py",
    "checkpoint does not exist": f"test {CONFIG} nosuch.pth",
    "config and checkpoint swapped": f"test weights.pth {CONFIG}",
    "COCO file as config": "train coco.json",
    "folder as config": "train folder",
    "image does not exist": f"infer {CONFIG} weights.pth nosuch.jpg",
    "work dir inside a file": f"train {CONFIG} --work-dir weights.pth/run",
    "--device cuda without a GPU": f"infer {CONFIG} weights.pth cat.jpg --device cuda:99",
    "--amp without a GPU": f"train {CONFIG} --amp",
    "--device gpu": f"infer {CONFIG} weights.pth cat.jpg --device gpu",
    "--score-thr 50": f"infer {CONFIG} weights.pth cat.jpg --score-thr 50",
    "--cfg-options without a value": f"train {CONFIG} --cfg-options train_cfg.max_iters",
    "misspelt option": f"train {CONFIG} --cfg-options optim_wraper.lr=1",
    "misspelt top-level key": "train misspelt.py",
    "syntax error in the config": "train broken.py",
    "data do not exist": "train mask_rcnn_flatten_swin_t_1x_coco.py --cfg-options train_dataloader.dataset.data_root=nosuch/",
    "--launcher without a launcher": f"train {CONFIG} --launcher pytorch",
    "misspelt command": "trian x.py",
}


def make_files(folder: Path) -> None:
    """Write the files that the commands name."""
    (folder / "folder").mkdir()
    (folder / "weights.pth").write_bytes(b"0")
    (folder / "cat.jpg").write_bytes(b"0")
    (folder / "coco.json").write_text(json.dumps({"images": [], "annotations": []}))
    (folder / "misspelt.py").write_text("model = dict()\ntrain_dataloder = dict()\n")
    (folder / "broken.py").write_text("model = dict(\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=float, default=2.0, help="seconds (default: %(default)s)")
    args = parser.parse_args()
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    failed = False
    print("| mistake | wall-clock s | processor s | message |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        make_files(Path(folder))
        for mistake, words in MISTAKES.items():
            before, start = os.times(), time.perf_counter()
            command = [sys.executable, "-m", "mmlisa.cli", *words.split()]
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
            seconds, after = time.perf_counter() - start, os.times()
            processor = after.children_user + after.children_system - before.children_user - before.children_system
            lines = done.stderr.strip().splitlines()
            reported = done.returncode == 2 and len(lines) == 1 and lines[0].startswith("error: ")
            failed |= not reported or seconds > args.limit
            message = lines[-1].replace(folder, "…") if lines else f"exit status {done.returncode}"
            print(
                f"| {mistake} | {seconds:.2f} | {processor:.2f} | {'' if reported else '**not one line** '}{message} |",
                flush=True,
            )
    sys.exit(failed)


if __name__ == "__main__":
    main()
