"""What a measurement depends on: the commit of the code, and the command."""

import subprocess
import sys
from pathlib import Path

# Measurements depend on nothing else in the clone. tools/model_zoo.py writes the metafile.
CODE = ("mmlisa", "configs", ":!configs/metafile.yml", "tools")


def commit_of_code(root: Path) -> tuple[str, str]:
    """Return the last commit that changed the code of a clone, and a path that differs from it or an empty text.

    Raises:
        OSError, subprocess.CalledProcessError: no git, or no clone.
    """
    git = ["git", "-C", str(root)]
    changed = _output([*git, "status", "--porcelain", "--", *CODE]).split()
    return _output([*git, "log", "-1", "--format=%h", "--", *CODE]), changed[-1] if changed else ""


def describe_environment() -> dict[str, str]:
    """Return the commit of the code and the command."""
    try:
        commit, changed = commit_of_code(Path(__file__).parents[2])
    except (OSError, subprocess.CalledProcessError):
        commit, changed = "no clone", ""
    return dict(commit=commit + "-dirty" * bool(changed), command=" ".join([Path(sys.argv[0]).name, *sys.argv[1:]]))


def _output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
