"""The error of operators that exist only in compiled form, and the commands that install packages for this Python."""

import shlex
import sys
from importlib import metadata
from importlib.util import find_spec

# mmcv is built during its installation, by default in an environment without torch; then it gets no operators.
_BUILD_TOOLS = ("setuptools>=77,<81", "wheel", "ninja", "packaging", "numpy")


def missing_operator(name: str) -> NotImplementedError:
    """Return an error that names the operator and the command that compiles it."""
    return NotImplementedError(
        f"the operator {name!r} needs mmcv's compiled operators, and this mmcv was installed without them. "
        f"To compile them, run: {build_mmcv_command()}"
    )


def install_command(*requirements: str, options: str = "") -> str:
    """Return the command that installs requirements for this Python; an environment made by uv has no pip."""
    # From the root folder, because in a clone uv would apply the settings of its pyproject.toml.
    pip = "-m pip install" if find_spec("pip") else None
    python = shlex.quote(sys.executable)
    start = f"{python} {pip}" if pip else f"uv pip install --directory / --python {python}"
    return " ".join([start, *options.split(), *(f'"{requirement}"' for requirement in requirements)])


def build_mmcv_command(cuda: bool = False) -> str:
    """Return the commands that build this environment's mmcv with compiled operators; ``cuda`` also without a visible GPU."""
    versions = {
        d.metadata["Name"]: d.version for d in metadata.distributions() if d.metadata["Name"] in ("mmcv", "onedl-mmcv")
    }
    mmcv = next((f"{name}=={version}" for name, version in versions.items()), "onedl-mmcv")
    build = install_command(mmcv, options="--no-build-isolation --force-reinstall --no-deps --no-cache-dir")
    return f"{install_command(*_BUILD_TOOLS)} && {'FORCE_CUDA=1 ' * cuda}MMCV_WITH_OPS=1 {build}"
