"""Commands of README and the first hour, and the pages' own tests, as a reader runs them. Takes half an hour."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.pages import ROOT, Block, commands, read_blocks

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


def _run(line: list[str], folder: Path) -> str:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    done = subprocess.run(line, cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, f"{shlex.join(line)}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


@pytest.mark.parametrize("page", ["README.md", "docs/first_hour.md"])
def test_commands(page, tmp_path):
    """In a folder with a clone's files."""
    for name in ("configs", "docs", "tools"):
        (tmp_path / name).symlink_to(ROOT / name)
    for words in commands(_write_files(page, tmp_path)):
        if line := _runnable(words):
            _run(line, tmp_path)


def test_worked_examples(tmp_path):
    """An operator and a host; test_code_blocks.py builds their configs."""
    for page in ("docs/add_operator.md", "docs/add_host.md"):
        _write_files(page, tmp_path)
    tests = sorted(path.name for path in tmp_path.glob("test_*.py"))
    assert "5 passed" in _run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests], tmp_path)
