"""Metadata is in pyproject.toml; here only what it cannot say: configs and tools ship in the wheel where MIM looks for them."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


def _not_shipped(folder: str, names: list[str]) -> set[str]:
    """Research, and the tools that run it, are for a clone."""
    scripts = (Path(folder, name) for name in names if name.endswith(".py"))
    research = {path.name for path in scripts if "from research" in path.read_text(encoding="utf-8")}
    return {"__pycache__", "research"} | research


class BuildWithMim(build_py):
    """Copies configs, tools and the model index into ``mmlisa/.mim`` of the wheel."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:  # a clone has them where they are
            return
        root, mim = Path(__file__).parent, Path(self.build_lib) / "mmlisa" / ".mim"
        for name in ("configs", "tools"):
            shutil.copytree(root / name, mim / name, dirs_exist_ok=True, ignore=_not_shipped)
        shutil.copy(root / "model-index.yml", mim)


setup(cmdclass={"build_py": BuildWithMim})
