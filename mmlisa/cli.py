"""The command ``mmlisa``, and the argument types, options and error handling of its tools.

This module imports the standard library only, because ``--help`` and mistakes in the arguments must not wait for PyTorch.
"""

import argparse
import ast
import errno
import os
import re
import runpy
import sys
import traceback
import warnings
from argparse import ArgumentTypeError
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mmlisa import __version__, config_path

# The commands and their files in tools/.
COMMANDS = {
    "demo": "demo.py",
    "train": "train.py",
    "test": "test.py",
    "infer": "infer.py",
    "export": "export.py",
    "fit": "fit.py",
    "check-data": "check_data.py",
    "convert": "convert_checkpoint.py",
    "flops": "flops.py",
    "visualize": "visualize.py",
    "demo-data": "demo_data.py",
    "demo-page": "demo_page.py",
    "check": "check.py",
}


def tools_folder() -> Path:
    """Return ``tools/`` of the clone, or of the wheel, which has it in ``mmlisa/.mim``."""
    package = Path(__file__).resolve().parent
    installed = package / ".mim" / "tools"
    return installed if installed.is_dir() else package.parent / "tools"


def main(argv: Sequence[str] | None = None) -> None:
    """Run the file of a command as ``__main__`` with the other arguments."""
    summaries = [f"  {name:<12}{_summary(tools_folder() / file)}" for name, file in COMMANDS.items()]
    parser = argparse.ArgumentParser(
        prog="mmlisa",
        epilog="\n".join(["commands:", *summaries, "", "mmlisa COMMAND --help lists the options of a command."]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND", help="one of those below")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the command")
    args = parser.parse_args(argv)
    file = tools_folder() / COMMANDS[args.command]
    sys.argv = [str(file), *args.arguments]
    sys.path.insert(0, str(file.parent))  # as Python does for a script
    runpy.run_path(str(file), run_name="__main__")


def _summary(path: Path) -> str:
    """Return the first sentence of a file's docstring without running the file."""
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))).partition("\n\n")[0].partition(": ``")[0]


# --- argument types ----------------------------------------------------------------------------------------------------------


def existing_path(text: str) -> str:
    """Type of an argument that names an existing file or folder."""
    path = os.path.expanduser(text)
    if not os.path.exists(path):
        raise ArgumentTypeError(f"'{text}' does not exist")
    return path


def config(text: str) -> str:
    """Type of an argument that names a config: a file, or a config that ships with mmlisa."""
    path = Path(text).expanduser()
    if path.suffix not in (".py", ".json", ".yml", ".yaml") or path.is_dir():
        raise ArgumentTypeError(f"'{text}' is not a config; the config comes first, then the checkpoint")
    try:
        return str(path) if path.is_file() else config_path(text)
    except FileNotFoundError as error:
        raise ArgumentTypeError(f"'{text}' does not exist; {error}") from error


def checkpoint(text: str) -> str:
    """Type of an argument that names a file with weights, or an address such as ``https://…`` or ``timm:NAME``."""
    if re.match(r"[\w+-]{2,}:", text):
        return text
    if text.endswith(".py"):
        raise ArgumentTypeError(f"'{text}' is a config; the config comes first, then the checkpoint")
    if os.path.isdir(existing_path(text)):
        raise ArgumentTypeError(f"'{text}' is a folder; name a checkpoint file in it")
    return existing_path(text)


def share(text: str) -> float:
    """Type of a number from 0 to 1."""
    if not 0 <= float(text) <= 1:
        raise ArgumentTypeError(f"'{text}' is not a number from 0 to 1")
    return float(text)


def count(text: str) -> int:
    """Type of a whole number from 1."""
    if int(text) < 1:
        raise ArgumentTypeError(f"'{text}' is not a whole number from 1")
    return int(text)


def key_value(text: str) -> str:
    """Type of a new value of a config entry, ``KEY=VALUE``."""
    if not re.match(r"[^=]+=", text):
        raise ArgumentTypeError(f"'{text}' is not of the form KEY=VALUE")
    return text


# --- parsers -----------------------------------------------------------------------------------------------------------------


def build_parser(description: str | None, **options) -> argparse.ArgumentParser:
    """Return a tool's parser with the options that all tools have."""
    name = next((name for name, file in COMMANDS.items() if file == Path(sys.argv[0]).name), None)
    parser = argparse.ArgumentParser(
        allow_abbrev=False, prog=name and f"mmlisa {name}", description=description, **options
    )
    parser.add_argument("--verbose", action="store_true", help="print everything that the libraries print")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


# Arguments that several tools have.
SHARED: dict[str, dict[str, Any]] = {
    "config": dict(type=config, help="config file, or the name of a config that ships with mmlisa"),
    "--cfg-options": dict(
        type=key_value,
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="override config entries: optim_wrapper.optimizer.lr=1e-4, custom_hooks.0.priority=LOW, KEY=[1,2]",
    ),
    "--min-matched": dict(
        type=share, default=0.9, help="share of the model that the checkpoint must hold (default: %(default)s)"
    ),
    "--backend": dict(
        choices=("auto", "onnxruntime", "openvino"),
        default="auto",
        help="runs an exported file (default: OpenVINO if it is installed, otherwise onnxruntime)",
    ),
    "--device": dict(
        choices=("cpu", "cuda"), help="default: a GPU if there is one; CUDA_VISIBLE_DEVICES chooses among several"
    ),
    "--launcher": dict(choices=("none", "pytorch", "slurm", "mpi"), default="none", help="what started the processes"),
    "--local_rank --local-rank": dict(type=int, default=0, help="set by the launcher"),
}


def add_shared(parser: argparse.ArgumentParser, *names: str, **changes: Any) -> None:
    """Add arguments of :data:`SHARED`, with changes."""
    for name in names:
        parser.add_argument(*name.split(), **SHARED[name] | changes)


# --- running -----------------------------------------------------------------------------------------------------------------


def run(main: Callable[[argparse.Namespace], None], args: argparse.Namespace) -> None:
    """Run a tool. An error that mmlisa or the operating system reports ends in one line, any other in a traceback.

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
        if args.debug or not (isinstance(error, OSError) or _is_ours(error)):
            raise
        print(f"error: {error}", file=sys.stderr)
        failed = isinstance(error, FloatingPointError | ChildProcessError) or getattr(error, "errno", 0) == errno.ENOSPC
        sys.exit(1 if failed else 2)


def _is_ours(error: BaseException | None) -> bool:
    """Return whether a ``raise`` of mmlisa or of a tool made an error. MMEngine's registries raise such errors anew."""
    folders = (str(Path(__file__).parent), str(tools_folder()))
    while error is not None:
        frames = traceback.extract_tb(error.__traceback__)
        if frames and frames[-1].filename.startswith(folders) and frames[-1].line.startswith("raise "):
            return True
        error = error.__cause__ or error.__context__
    return False
