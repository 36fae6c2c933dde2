"""An environment with the packages of the small runtime and nothing else, made without a network."""

import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import cv2

PACKAGES = ("numpy", "pillow", "onnxruntime")


def make_environment(folder: Path) -> Path:
    """Return its Python. The packages are links to those of this environment."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for package in PACKAGES:
        installed = distribution(package)
        for name in {file.parts[0] for file in installed.files} - {"..", "__pycache__"}:
            (site / name).symlink_to(installed.locate_file(name))
    # OpenCV has several distributions; its wheels keep their libraries beside the package.
    for path in Path(cv2.__file__).parents[1].glob("*opencv*.libs"):
        (site / path.name).symlink_to(path)
    (site / "cv2").symlink_to(Path(cv2.__file__).parent)
    return folder / "bin" / "python"
