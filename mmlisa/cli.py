"""The command ``mmlisa``, and what every tool's command line has in common.

``mmlisa train CONFIG`` runs ``tools/train.py``, of a clone or of the installed wheel, and so on for every file of ``tools/``.
Imports the standard library only: ``--help`` and mistakes in the arguments must not wait for PyTorch.
"""

import argparse
import ast
import errno
import os
import re
import runpy
import sys
import warnings
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path

# Files of tools/ whose command is not called like the file.
NAMES = {"convert_checkpoint": "convert", "paper_tables": "tables"}
CHECK = "check"  # python -m mmlisa.check_env, which is no file of tools/: it must run where nothing else does
# What a wrong argument, config or file raises, here and in the libraries.
MISTAKES = (ValueError, TypeError, OSError, ImportError, FloatingPointError)
# Failures of the machine, not of the user.
_FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)


# Set while the console script runs a tool: what the user typed for it.
_program: str | None = None


def tools_folder() -> Path:
    """``tools/`` of the clone, or of the wheel, where it lies in ``mmlisa/.mim``."""
    package = Path(__file__).resolve().parent
    installed = package / ".mim" / "tools"
    return installed if installed.is_dir() else package.parent / "tools"


def commands() -> dict[str, Path]:
    """The file of each command, by name."""
    files = {
        NAMES.get(path.stem, path.stem).replace("_", "-"): path
        for path in sorted(tools_folder().glob("*.py"))
        if not path.stem.startswith("_")
    }
    return dict(sorted({**files, CHECK: Path(__file__).with_name("check_env.py")}.items()))


def main(argv: Sequence[str] | None = None) -> None:
    """Runs a command as ``__main__``, with the rest of the arguments."""
    argv = list(sys.argv[1:] if argv is None else argv)
    known = commands()
    if not argv or argv[0] in ("-h", "--help"):
        width = max(map(len, known))
        lines = [f"  {name:<{width}}  {_summary(path)}" for name, path in known.items()]
        print("usage: mmlisa COMMAND …\n\n" + "\n".join(lines) + "\n\nmmlisa COMMAND --help lists a command's options.")
        return
    name, *rest = argv
    if name == "--version":
        from mmlisa import __version__

        print(__version__)
        return
    if name not in known:
        near = get_close_matches(name, known, n=1, cutoff=0.4)
        print(
            f"error: mmlisa has no command {name!r}"
            + (f"; did you mean {near[0]}?" if near else f"; it has {', '.join(known)}"),
            file=sys.stderr,
        )
        sys.exit(2)
    global _program
    _program = f"mmlisa {name}"
    sys.argv = [_program, *rest]
    sys.path.insert(0, str(tools_folder()))  # as Python does for a script
    runpy.run_path(str(known[name]), run_name="__main__")


def _summary(path: Path) -> str:
    """The first sentence of a file's docstring, read without running the file."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.split("\n\n")[0].split(": ``")[0].replace("\n", " ").rstrip(".")


def command(name: str) -> str:
    """How the user would type the command ``name``: like the one that is running."""
    program = Path(sys.argv[0])
    if _program or program.suffix != ".py":
        return f"mmlisa {name}"
    file = next((stem for stem, other in NAMES.items() if other == name), name.replace("-", "_"))
    return f"python {program.with_name(f'{file}.py')}"


# --- arguments ---------------------------------------------------------------------------------------------------------------


def build_parser(description: str | None, **options) -> argparse.ArgumentParser:
    """A tool's parser, with the options that all tools have."""
    parser = argparse.ArgumentParser(prog=_program, description=description, **options)
    parser.add_argument("--verbose", action="store_true", help="print everything that the libraries print")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


def add_config_options(parser: argparse.ArgumentParser) -> None:
    """``--cfg-options``; see :func:`mmlisa.engine.launch.parse_options`."""
    parser.add_argument(
        "--cfg-options",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="override config entries: optim_wrapper.optimizer.lr=1e-4, custom_hooks.0.priority=LOW, KEY=[1,2]",
    )


def add_launcher(parser: argparse.ArgumentParser) -> None:
    """OpenMMLab's options for several processes."""
    parser.add_argument(
        "--launcher", choices=["none", "pytorch", "slurm", "mpi"], default="none", help="what started the processes"
    )
    parser.add_argument("--local_rank", "--local-rank", type=int, default=0, help="set by the launcher")


# --- running -----------------------------------------------------------------------------------------------------------------


def run(main: Callable[[argparse.Namespace], None], args: argparse.Namespace) -> None:
    """Runs a tool; what users can get wrong ends in one line.

    Exits with 2 after a mistake in the arguments, the config or the files, with 1 when the run failed (a loss that is not
    finite, a full disk, a killed worker process), with 130 after Ctrl-C.
    """
    prepare(args.verbose)
    try:
        main(args)
    except MISTAKES as error:
        if args.debug:
            raise
        print(f"error: {_message(error)}", file=sys.stderr)
        failed = isinstance(error, FloatingPointError | ChildProcessError) or getattr(error, "errno", None) in _FAULTS
        sys.exit(1 if failed else 2)
    except KeyboardInterrupt:
        if args.debug:
            raise
        print("interrupted", file=sys.stderr)
        sys.exit(130)


def prepare(verbose: bool = False) -> None:
    """Sets what must be set before PyTorch and OpenMMLab are imported."""
    # By default, idle OpenMP threads spin: beside another busy process, everything takes ten times as long.
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"} & os.environ.keys():
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    if not verbose:
        warnings.filterwarnings("ignore", message="faster_coco_eval is not installed")
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.filterwarnings("ignore", category=FutureWarning)


def _message(error: BaseException) -> str:
    """What an exception says; an OSError of the system itself says it with its number."""
    if isinstance(error, OSError) and error.errno is not None and error.filename is None:
        return str(error.strerror)
    if str(error).startswith("Caught "):  # in a process that loads data: its traceback, and below that what it said
        said = re.split(rf"^(?:\w+\.)*{type(error).__name__}\b:? ?", str(error), flags=re.MULTILINE)[-1]
        return said.strip() or type(error).__name__
    return str(error) or type(error).__name__


if __name__ == "__main__":
    from mmlisa import cli  # the module that the tools import, not this one, which is called __main__

    cli.main()
