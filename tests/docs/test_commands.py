"""Commands of README, the first hour and docs/reproduce.md, and the pages' own tests, as a reader runs them. Takes an hour.

test_command_lines.py parses every documented command line in seconds.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from helpers.golden_weights import filled, shapes
from helpers.pages import ROOT, Block, commands, read_blocks
from mmlisa.training.config import load_config
from research.rehearse import make_data, shorten

pytestmark = pytest.mark.nightly
# Installations, and programs that do not end or that run this suite.
NOT_RUN = (
    "pip",
    "uv sync",
    "uv run pytest",
    "uv run mkdocs",
    "cd",
    "git",
    "torchrun",
    "conda",
    "source",
    ".",
    "tensorboard",
)
EIGHT = ["torchrun", "--nproc_per_node", "8", "-m", "mmlisa"]


def _runnable(words: list[str]) -> list[str] | None:
    """Return the words with this environment's Python in place of uv and console scripts; None if they are not run."""
    if " ".join(words).startswith(NOT_RUN):
        return None
    words = words[2:] if words[:2] == ["uv", "run"] else words
    if words[0] == "mmlisa":
        return [sys.executable, "-m", *words]
    return [sys.executable, *(words[1:] if words[0] == "python" else words)]


def _write_files(page: str, folder: Path) -> list[Block]:
    blocks = read_blocks(ROOT / page)
    for block in blocks:
        if block.title:
            (folder / block.title).write_text(block.code)
    return blocks


def _run(line: list[str], folder: Path, may_fail: bool = False) -> str:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (folder, ROOT, ROOT / "tools")))}
    done = subprocess.run(line, cwd=folder, env=env, capture_output=True, text=True)
    assert may_fail or done.returncode == 0, f"{shlex.join(line)}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


@pytest.mark.parametrize("page", ["README.md", "docs/first_hour.md"])
def test_commands(page, tmp_path):
    """In a folder with a clone's files."""
    for name in ("configs", "docs", "tools"):
        (tmp_path / name).symlink_to(ROOT / name)
    for words in commands([block for block in _write_files(page, tmp_path) if not block.not_run]):
        if line := _runnable(words):
            _run(line, tmp_path)


def test_worked_examples(tmp_path):
    """An operator and a host; test_code_blocks.py builds their configs."""
    for page in ("docs/add_operator.md", "docs/add_host.md"):
        _write_files(page, tmp_path)
    tests = sorted(path.name for path in tmp_path.glob("test_*.py"))
    assert "5 passed" in _run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests], tmp_path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Miniature data sets."""
    path = tmp_path_factory.mktemp("reproduce")
    make_data(path / "data")
    torch.save({"model": filled(shapes("official_flatten")["FLattenSwin tiny"])}, path / "flatten_swin_t.pth")
    return path


@pytest.mark.parametrize("block", [b for b in read_blocks(ROOT / "docs" / "reproduce.md") if b.language == "bash"])
def test_an_example_of_reproduce(block, folder):
    """Word for word, but with one process and one epoch."""
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
        # The miniature data sets have fewer classes, of which check-data complains.
        _run([sys.executable, "-m", "mmlisa", *arguments], folder, may_fail=command == "check-data")
        if command == "train":
            work_dir = folder / "work_dirs" / name
            last = Path((work_dir / "last_checkpoint").read_text())
            length = cfg.train_cfg.get("max_epochs")
            shutil.copy(last, work_dir / (f"epoch_{length}.pth" if length else f"iter_{cfg.train_cfg.max_iters}.pth"))
            if "--pretrained" in words:
                log = next(work_dir.glob("2*/2*.log")).read_text()
                assert re.search(r"\.pth: (?:all|backbone ([\d.]+ M) of \1) ", log)
