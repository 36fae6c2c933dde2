"""The examples of docs/reproduce.md, word for word on miniature data sets: one process, one epoch. Takes a quarter of an hour."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from helpers.golden_weights import filled, shapes
from helpers.pages import ROOT, commands, read_blocks
from mmlisa.training.config import load_config
from research.rehearse import make_data, shorten

pytestmark = pytest.mark.nightly
EIGHT = ["torchrun", "--nproc_per_node", "8", "-m", "mmlisa"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("reproduce")
    make_data(path / "data")
    torch.save({"model": filled(shapes("official_flatten")["FLattenSwin tiny"])}, path / "flatten_swin_t.pth")
    return path


@pytest.mark.parametrize("block", [b for b in read_blocks(ROOT / "docs" / "reproduce.md") if b.language == "bash"])
def test_an_example(block, folder):
    for words in commands([block]):
        assert words[: len(EIGHT)] == EIGHT or words[0] == "mmlisa"
        arguments = words[len(EIGHT) :] if words[0] == "torchrun" else words[1:]
        command, name = arguments[:2]
        cfg = load_config(name)
        if words[0] == "torchrun":  # one process instead of eight, and a short training
            place = arguments.index("--launcher")
            assert arguments[place : place + 2] == ["--launcher", "pytorch"]
            del arguments[place : place + 2]
            if command == "train":
                arguments += ["--epochs", "1"] if "max_epochs" in cfg.train_cfg else ["--iters", "2"]
            options, limits = shorten(cfg)
            arguments += [*(limits if command == "train" else []), "--cfg-options", *options]
        done = subprocess.run(
            [sys.executable, "-m", "mmlisa", *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tools")])},
            capture_output=True,
            text=True,
        )
        # The miniature data sets have fewer classes, of which check-data complains.
        assert done.returncode == 0 or command == "check-data", f"{words}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        if command == "train":
            work_dir = folder / "work_dirs" / name
            last = Path((work_dir / "last_checkpoint").read_text())
            length = cfg.train_cfg.get("max_epochs")
            shutil.copy(last, work_dir / (f"epoch_{length}.pth" if length else f"iter_{cfg.train_cfg.max_iters}.pth"))
            if "--pretrained" in words:
                log = next(work_dir.glob("2*/2*.log")).read_text()
                matched, all_ = map(int, re.search(r"(\d+) of (\d+) ", log[log.index(".pth: ") :]).groups())
                assert matched > 0.9 * all_
