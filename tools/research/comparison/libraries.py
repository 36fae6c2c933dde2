"""Imports of the jobs. The process from which the jobs are forked imports this module once for all of them."""

from importlib.util import find_spec

from mmengine.utils import import_modules_from_strings

from mmlisa.training.log import import_quietly

from . import runs  # noqa: F401

import_quietly()
for library in ("mmdet", "mmseg", "mmpretrain"):
    if find_spec(library):
        import_modules_from_strings(
            [f"{library}.{part}" for part in ("models", "engine", "evaluation", "visualization")]
        )
