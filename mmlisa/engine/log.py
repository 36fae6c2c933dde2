"""What the tools print: MMEngine's log without its dumps. The log file has everything."""

import contextlib
import importlib
import io
import logging
from importlib.util import find_spec

from mmengine.logging import MMLogger
from mmengine.runner import Runner

# How the records begin that nobody reads on a console.
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


class ConsoleFilter(logging.Filter):
    """Keeps :data:`NOISE` off a handler."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith(NOISE)


class QuietRunner(Runner):
    """MMEngine's runner with a console that shows progress, results and warnings only."""

    def build_logger(self, *args, **kwargs) -> MMLogger:
        logger = super().build_logger(*args, **kwargs)
        for handler in logger.handlers:
            if not isinstance(handler, logging.FileHandler):
                handler.addFilter(ConsoleFilter())
        return logger


def import_quietly() -> None:
    """Imports the data sets of the installed libraries, whose imports print which optional packages they did not find.

    pycocotools' reader of annotations, which prints what it does, is silent from then on; its tables of results are not.
    """
    with contextlib.redirect_stdout(io.StringIO()):
        for library in ("mmdet", "mmseg", "mmpretrain"):
            if find_spec(library):
                importlib.import_module(f"{library}.datasets")
    if find_spec("pycocotools"):
        importlib.import_module("pycocotools.coco").print = lambda *values: None
