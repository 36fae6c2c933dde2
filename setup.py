"""Metadata is in pyproject.toml; here only what it cannot say: configs and tools ship in the wheel where MIM looks for them."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithMim(build_py):
    """Copies configs, tools and the model index into ``mmlisa/.mim`` of the wheel."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:  # a clone has them where they are
            return
        root, mim = Path(__file__).parent, Path(self.build_lib) / "mmlisa" / ".mim"
        shutil.copytree(
            root / "configs", mim / "configs", dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
        )
        (mim / "tools").mkdir(exist_ok=True)
        for name in ("train", "test", "infer", "export"):
            shutil.copy(root / "tools" / f"{name}.py", mim / "tools")
        shutil.copy(root / "model-index.yml", mim)


setup(cmdclass={"build_py": BuildWithMim})
