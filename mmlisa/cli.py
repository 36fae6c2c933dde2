"""The command ``mmlisa``, and the options and error handling that all tools share.

``mmlisa train CONFIG`` runs ``tools/train.py`` of a clone or of the installed wheel. So does every other file of ``tools/``.
This module imports the standard library only, because ``--help`` and mistakes in the arguments must not wait for PyTorch.
"""

import argparse
import ast
import errno
import os
import re
import runpy
import shlex
import shutil
import sys
import warnings
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path

from mmlisa import options

# Commands whose name differs from their file in tools/.
NAMES = {"convert_checkpoint": "convert", "paper_tables": "tables"}
CHECK = "check"  # mmlisa/check_env.py; it is not in tools/ because it must also run in broken environments
# Exceptions that a wrong argument, config or file causes in mmlisa and in the libraries.
MISTAKES = (ValueError, TypeError, OSError, ImportError, FloatingPointError)
# Errors of the machine, not of the user.
_FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)

# The words that the user typed for the tool, while the console script runs it; runpy sets sys.argv[0] to the tool's file.
_program: str | None = None


def tools_folder() -> Path:
    """Return ``tools/`` of the clone, or of the wheel, which has it in ``mmlisa/.mim``."""
    package = Path(__file__).resolve().parent
    installed = package / ".mim" / "tools"
    return installed if installed.is_dir() else package.parent / "tools"


def commands() -> dict[str, Path]:
    """Return the file of each command by its name."""
    files = {
        NAMES.get(path.stem, path.stem).replace("_", "-"): path
        for path in sorted(tools_folder().glob("*.py"))
        if not path.stem.startswith("_")
    }
    return dict(sorted({**files, CHECK: Path(__file__).with_name("check_env.py")}.items()))


# What follows ``python`` instead of ``-m``, without the current folder in sys.path: a file such as queue.py there would replace
# Python's. Its option -P does the same from 3.11 on.
RUN_MODULE = (
    "-c",
    "import sys; sys.path[:] = filter(None, sys.path); import runpy; "
    "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)",
)


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command as ``__main__`` with the other arguments."""
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
    """Return the first sentence of a file's docstring without running the file."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.split("\n\n")[0].split(": ``")[0].replace("\n", " ").rstrip(".")


def command(name: str) -> str:
    """Return the command line for the command ``name``, in the form of the running one (script, module or console script)."""
    script = Path(sys.argv[0])
    if _program or script.suffix != ".py":
        words, module = ["mmlisa", name], ["-m", "mmlisa.cli", name]
    else:
        file = next((stem for stem, other in NAMES.items() if other == name), name.replace("-", "_"))
        module = [str(script.with_name(f"{file}.py"))]
        words = ["python", *module]
    if "UV_RUN_RECURSION_DEPTH" in os.environ:
        return shlex.join(["uv", "run", *words])
    found = shutil.which(words[0])
    if found and Path(found).parent == Path(sys.executable).parent:
        return shlex.join(words)
    return shlex.join([sys.executable, *module])  # the environment is not activated


# --- arguments ---------------------------------------------------------------------------------------------------------------


def build_parser(description: str | None, **options) -> argparse.ArgumentParser:
    """Return a tool's parser with the options that all tools have."""
    parser = argparse.ArgumentParser(prog=_program, description=description, **options)
    parser.add_argument("--verbose", action="store_true", help="print everything that the libraries print")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


def add_config_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--cfg-options``; see :func:`mmlisa.training.config.parse_options`."""
    parser.add_argument(
        "--cfg-options",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="override config entries: optim_wrapper.optimizer.lr=1e-4, custom_hooks.0.priority=LOW, KEY=[1,2]",
    )


def add_launcher(parser: argparse.ArgumentParser) -> None:
    """Add OpenMMLab's options for several processes."""
    parser.add_argument(
        "--launcher", choices=["none", "pytorch", "slurm", "mpi"], default="none", help="what started the processes"
    )
    parser.add_argument("--local_rank", "--local-rank", type=int, default=0, help="set by the launcher")


# --- running -----------------------------------------------------------------------------------------------------------------


def run(main: Callable[[argparse.Namespace], None], args: argparse.Namespace) -> None:
    """Check the arguments and run a tool. A user's mistake ends in a one-line message.

    The exit status is 2 after a mistake in the arguments, the config or the files, 1 if the run failed (a loss that is not
    finite, a full disk, a killed worker process), and 130 after Ctrl-C.
    """
    prepare(args.verbose)
    try:
        options.check(args)
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
    """Set the warning filters that must be set before PyTorch and OpenMMLab are imported."""
    if not verbose:
        warnings.filterwarnings("ignore", message="faster_coco_eval is not installed")
        # PyTorch uses the encoding all the same.
        warnings.filterwarnings("ignore", message="pickle_load_args only works")
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.filterwarnings("ignore", category=FutureWarning)


def _message(error: BaseException) -> str:
    """Return the text of an exception. The text of the operating system's own OSError has its number."""
    if isinstance(error, OSError) and error.errno is not None and error.filename is None:
        return str(error.strerror)
    if str(error).startswith("Caught "):  # from a loader worker: a traceback, with the message below it
        said = re.split(rf"^(?:\w+\.)*{type(error).__name__}\b:? ?", str(error), flags=re.MULTILINE)[-1]
        return said.strip() or type(error).__name__
    return str(error) or type(error).__name__


if __name__ == "__main__":
    from mmlisa import cli  # the module that the tools import; this one is called __main__

    cli.main()
