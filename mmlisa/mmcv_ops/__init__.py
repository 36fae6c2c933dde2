"""mmcv's operators on torchvision's and PyTorch's, where mmcv was installed without compiled ones.

mmcv keeps its operators in a compiled module, ``mmcv._ext``; mmdet and mmseg cannot be imported without it. ``import mmlisa``
appends `ExtensionFinder` to Python's import system. It is asked for ``mmcv._ext`` only after everything else has failed to
find it, so compiled operators win where they are there, and nothing is imported until mmcv asks. `mmlisa.mmcv_ops.ext` then
takes their place.

    python -m mmlisa.mmcv_ops install     # for every program of the environment, also those that never import mmlisa
    python -m mmlisa.mmcv_ops uninstall
    python -m mmlisa.mmcv_ops status
"""

import sys
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, spec_from_file_location

EXTENSION = "mmcv._ext"


class ExtensionFinder:
    """Finds ``mmcv._ext`` in `mmlisa.mmcv_ops.ext`. Belongs at the end of ``sys.meta_path``."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return spec_from_file_location(name, f"{__path__[0]}/ext.py") if name == EXTENSION else None


def activate() -> None:
    """Provides ``mmcv._ext`` in this process from now on, unless a compiled one is there."""
    if ExtensionFinder not in sys.meta_path:
        sys.meta_path.append(ExtensionFinder)


def find_compiled() -> str | None:
    """The file of mmcv's compiled operators, None without; imports nothing."""
    mmcv = find_spec("mmcv")
    spec = PathFinder.find_spec(EXTENSION, mmcv.submodule_search_locations) if mmcv else None
    return spec.origin if spec else None
