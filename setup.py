"""Metadata is in pyproject.toml; here only what it cannot say: configs and tools ship in the wheel where MIM looks for them."""

import shutil
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

sys.path.insert(0, str(Path(__file__).parent))
from mmlisa.cli import COMMANDS  # imports the standard library only


class BuildWithMim(build_py):
    """Copies configs, tools and the model index into ``mmlisa/.mim`` of the wheel."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:  # a clone has them where they are
            return
        root, mim = Path(__file__).parent, Path(self.build_lib) / "mmlisa" / ".mim"
        for name in ("configs", *(f"tools/{name}" for name in (*COMMANDS.values(), "figures"))):
            target = mim / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if (root / name).is_dir():
                shutil.copytree(root / name, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(root / name, target)
        shutil.copy(root / "model-index.yml", mim)


setup(cmdclass={"build_py": BuildWithMim})
