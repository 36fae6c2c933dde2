"""The command ``mmlisa``, and the argument types, options and error handling of the commands.

This module imports the standard library only, because ``--help`` and mistakes in the arguments must not wait for PyTorch.
"""

import argparse
import errno
import os
import re
import sys
import warnings
from argparse import ArgumentTypeError
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from mmlisa import __version__, config_path
from mmlisa.errors import UserError

# The modules of mmlisa.commands, in the order of --help.
COMMANDS = {
    "demo": "Find objects in sample images with the trained model that ships with mmlisa",
    "train": "Train a detector, segmentor or classifier",
    "test": "Evaluate a checkpoint or an exported file (mAP, mIoU, top-1)",
    "infer": "Draw a model's predictions on images and films",
    "export": "Export a model with its results to ONNX",
    "fit": "Train a model on a folder of your images",
    "adapt": "Teach a backbone with another attention its own features, from images without labels",
    "check-data": "Check a config's data, list what is wrong, and draw samples",
    "convert": "Convert published weights into a checkpoint of this package",
    "flops": "Count parameters and multiply-accumulates of a config's model",
    "visualize": "Draw attention kernels of models, or the curves of a training",
    "demo-data": "Make the offline demo data, real objects pasted on real backgrounds with exact masks",
    "check": "Report the versions that are installed, and what cannot be imported",
}


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command: ``mmlisa COMMAND …``."""
    summaries = [f"  {name:<12}{summary}" for name, summary in COMMANDS.items()]
    parser = argparse.ArgumentParser(
        prog="mmlisa",
        epilog="\n".join(["commands:", *summaries, "", "mmlisa COMMAND --help lists the options of a command."]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND", help="one of those below")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="options and files of the command")
    args = parser.parse_args(argv)
    command = import_module(f"mmlisa.commands.{args.command.replace('-', '_')}")
    # Intermixed: options may stand between files.
    run(command.main, command.parser().parse_intermixed_args(args.arguments))


def existing_path(text: str) -> str:
    """Type of an argument that names an existing file or folder."""
    path = os.path.expanduser(text)
    if not os.path.exists(path):
        raise ArgumentTypeError(f"'{text}' does not exist")
    return path


def config_file(text: str) -> str:
    """Type of an argument that names a config: a file, or a config that ships with mmlisa, mmdet, mmseg or mmpretrain."""
    path = Path(text).expanduser()
    if path.is_dir():
        raise ArgumentTypeError(f"'{text}' is a folder, not a config; `mmlisa fit FOLDER` trains on a folder of images")
    if path.is_file() and path.suffix not in (".py", ".json", ".yml", ".yaml"):
        raise ArgumentTypeError(f"'{text}' is not a config; the config comes first, then the checkpoint")
    try:
        return str(path) if path.is_file() else config_path(text)
    except FileNotFoundError as error:
        raise ArgumentTypeError(str(error)) from error


def weights_source(text: str) -> str:
    """Type of an argument that names a file with weights, or an address such as ``https://…`` or ``timm:NAME``."""
    if re.match(r"[\w+-]{2,}:", text):
        return text
    if text.endswith(".py"):
        raise ArgumentTypeError(f"'{text}' is a config; the config comes first, then the checkpoint")
    if os.path.isdir(existing_path(text)):
        raise ArgumentTypeError(f"'{text}' is a folder; name a checkpoint file in it")
    return existing_path(text)


def fraction(text: str) -> float:
    """Type of a number from 0 to 1."""
    if not 0 <= float(text) <= 1:
        raise ArgumentTypeError(f"'{text}' is not a number from 0 to 1")
    return float(text)


def positive_int(text: str) -> int:
    """Type of a whole number from 1."""
    if int(text) < 1:
        raise ArgumentTypeError(f"'{text}' is not a whole number from 1")
    return int(text)


def key_value(text: str) -> str:
    """Type of a new value of a config entry, ``KEY=VALUE``."""
    if not re.match(r"[^=]+=", text):
        raise ArgumentTypeError(f"'{text}' is not of the form KEY=VALUE")
    if "dict(" in text:
        raise ArgumentTypeError(f"'{text}': set single entries, KEY.type=NAME KEY.option=VALUE, or write a config")
    return text


def build_parser(description: str | None, command: str = "", **options) -> argparse.ArgumentParser:
    """Return the parser of a command, or of a tool that is not a command, with the options that all have."""
    options |= dict(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, description=description)
    parser = argparse.ArgumentParser(prog=f"mmlisa {command}" if command else None, **options)
    parser.add_argument("--verbose", action="store_true", help="print everything that the libraries print")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


# Arguments that several commands have.
SHARED: dict[str, dict[str, Any]] = {
    "config": dict(type=config_file, help="config file, or the name of a config that ships with mmlisa"),
    "--cfg-options": dict(
        type=key_value,
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="override config entries: optim_wrapper.optimizer.lr=1e-4, custom_hooks.0.priority=LOW, KEY=[1,2]",
    ),
    "--may-differ": dict(
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME",
        help="parts, entries or options of the backbone that need not agree with the checkpoint: roi_head.mask_head, "
        "'backbone.norm*', backbone.attention",
    ),
    "--device": dict(
        choices=("cpu", "cuda"), help="default: a GPU if there is one; CUDA_VISIBLE_DEVICES chooses among several"
    ),
    "--tile": dict(
        type=int,
        metavar="PIXELS",
        help="predict on tiles of this size; 0: on whole images (default: the tiles of the config or of the exported file)",
    ),
    "--overlap": dict(type=fraction, help="repeated share of tiles (default: that of the config or the file, or 0.2)"),
    "--launcher": dict(choices=("none", "pytorch", "slurm", "mpi"), default="none", help="what started the processes"),
    "--local_rank --local-rank": dict(type=int, default=0, help="set by the launcher"),
}


def add_shared(parser: argparse.ArgumentParser, *names: str, **changes: Any) -> None:
    """Add arguments of :data:`SHARED`, with changes."""
    for name in names:
        parser.add_argument(*name.split(), **SHARED[name] | changes)


def run(main: Callable[[argparse.Namespace], None], args: argparse.Namespace) -> None:
    """Run a command. An error that mmlisa or the operating system reports ends in one line, any other in a traceback.

    The exit status is 2 after a mistake in the arguments, the config or the files, 1 if the run failed (a loss that is not
    finite, a full disk, a failed child process), and 130 after Ctrl-C.
    """
    if not args.verbose:
        warnings.filterwarnings("ignore", message="faster_coco_eval is not installed")
        for category in (DeprecationWarning, FutureWarning):
            warnings.filterwarnings("ignore", category=category)
    try:
        main(args)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        runtime = sys.modules.get("mmlisa.runtime")  # imports nothing of mmlisa, so that products can copy it
        ours = (UserError, runtime.InputError) if runtime else (UserError,)
        missing = _missing_package(error)
        if args.debug or not (missing or isinstance(error, (*ours, OSError, FloatingPointError))):
            raise
        print(f"error: {missing or error}", file=sys.stderr)
        failed = isinstance(error, FloatingPointError | ChildProcessError) or getattr(error, "errno", 0) == errno.ENOSPC
        sys.exit(1 if failed else 2)


# Packages, and the extra of mmlisa that brings them.
_EXTRAS = {
    "onedl": ("mmengine", "mmcv", "mmdet", "mmseg", "mmpretrain", "supervision"),
    "export": ("onnx", "onnxscript", "onnxruntime", "cv2"),
    "fit": ("jinja2", "matplotlib", "pycocotools", "scipy"),
    "demo": ("skimage", "sklearn", "imgaug"),
    "track": ("trackers",),
}


def _missing_package(error: BaseException) -> str:
    """Return what to install for a package that is not there; empty for other errors, and for names that a module lacks."""
    if not isinstance(error, ImportError):
        return ""
    if error.name is None:  # raised by a library, with its own advice
        return str(error)
    name = error.name.partition(".")[0]
    for extra, packages in _EXTRAS.items():
        if isinstance(error, ModuleNotFoundError) and name in packages:
            return f"the package {name} is not installed: pip install 'mmlisa[{extra}]'"
    return ""
