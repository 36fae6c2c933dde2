"""The worked examples of the documentation, done as a reader would: an operator and a host."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.pages import ROOT, read_blocks

pytestmark = pytest.mark.nightly


def run(folder: Path, *words: str) -> str:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    done = subprocess.run([sys.executable, *words], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-3000:]
    return done.stdout


def write_files(page: str, folder: Path) -> None:
    for block in read_blocks(ROOT / "docs" / page):
        if block.title:
            (folder / block.title).write_text(block.code)


def test_operator_and_host(tmp_path):
    """The pages' own tests pass; test_code_blocks.py builds their configs."""
    for page in ("add_operator.md", "add_host.md"):
        write_files(page, tmp_path)
    tests = sorted(path.name for path in tmp_path.glob("test_*.py"))
    assert "5 passed" in run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests)
