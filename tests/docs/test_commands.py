"""Every command of README and the first hour runs as written, in a folder with a clone's files. Takes half an hour."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.pages import ROOT, commands, read_blocks

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


@pytest.mark.parametrize("page", ["README.md", "docs/first_hour.md"])
def test_commands(page, tmp_path):
    for name in ("configs", "docs", "tools"):
        (tmp_path / name).symlink_to(ROOT / name)
    blocks = read_blocks(ROOT / page)
    for block in blocks:
        if block.title:
            (tmp_path / block.title).write_text(block.code)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    for words in commands(blocks):
        if (line := _runnable(words)) is None:
            continue
        done = subprocess.run(line, cwd=Path(tmp_path), env=env, capture_output=True, text=True)
        assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
