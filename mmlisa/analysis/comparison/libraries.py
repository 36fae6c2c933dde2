"""Imported by the process from which runs are forked: what their configs would import each time."""

from importlib.util import find_spec

from mmengine.utils import import_modules_from_strings

from mmlisa.engine.log import import_quietly

import_quietly()
for _library in ("mmdet", "mmseg", "mmpretrain"):
    if find_spec(_library):
        import_modules_from_strings(
            [f"{_library}.{part}" for part in ("models", "engine", "evaluation", "visualization")]
        )
