"""The console output of the tools: MMEngine's log without its dumps. The log file contains everything."""

import contextlib
import importlib
import io
import logging
from importlib.util import find_spec

from mmengine.logging import MMLogger
from mmengine.runner import Runner

OPENMMLAB = ("mmdet", "mmseg", "mmpretrain")
# The beginnings of log records hidden from the console.
NOISE = (
    "\n------------------------------------------------------------\nSystem environment",
    "Config:\n",
    "Hooks will be executed in the following order",
    "Distributed training is not used, all SyncBatchNorm",
    "paramwise_options --",
    '"FileClient" will be deprecated',
    '"HardDiskBackend" is the alias',
    "Exp name:",
)


class QuietRunner(Runner):
    """MMEngine's runner with a console that shows progress, results and warnings only."""

    def build_logger(self, *args, **kwargs) -> MMLogger:
        logger = super().build_logger(*args, **kwargs)
        for handler in logger.handlers:
            if not isinstance(handler, logging.FileHandler):
                handler.addFilter(lambda record: not record.getMessage().startswith(NOISE))
        return logger


def import_quietly(*libraries: str | None) -> None:
    """Import the data sets of OpenMMLab's ``libraries``, by default of all installed ones, and hide what they print."""
    with contextlib.redirect_stdout(io.StringIO()):
        for library in libraries or OPENMMLAB:
            if library in OPENMMLAB and find_spec(library):
                importlib.import_module(f"{library}.datasets")
