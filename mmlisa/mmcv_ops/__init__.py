"""Replacements for mmcv's compiled operators, built on torchvision and PyTorch.

mmcv keeps its operators in a compiled module, ``mmcv._ext``, and mmdet and mmseg cannot be imported without it.
``import mmlisa`` appends :class:`ExtensionFinder` to Python's import system. Python asks it for ``mmcv._ext`` only if no
compiled module exists, and then loads `mmlisa.mmcv_ops.ext` under that name. Nothing is imported until mmcv asks.
A program that imports mmdet before mmlisa needs ``import mmlisa`` as its first line.
"""

import sys
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, spec_from_file_location

EXTENSION = "mmcv._ext"


class ExtensionFinder:
    """Finder that maps ``mmcv._ext`` to `mmlisa.mmcv_ops.ext`; it belongs at the end of ``sys.meta_path``."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return spec_from_file_location(name, f"{__path__[0]}/ext.py") if name == EXTENSION else None


def activate() -> None:
    """Provide ``mmcv._ext`` in this process from now on, unless a compiled one is installed."""
    if ExtensionFinder not in sys.meta_path:
        sys.meta_path.append(ExtensionFinder)


def find_compiled() -> str | None:
    """Return the file of mmcv's compiled operators, or None if there is none. Imports nothing."""
    mmcv = find_spec("mmcv")
    spec = PathFinder.find_spec(EXTENSION, mmcv.submodule_search_locations) if mmcv else None
    return spec.origin if spec else None
