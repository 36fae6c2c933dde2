"""Checks of arguments for the rooms that still import them."""

import os
import re
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

EXPORTED_SUFFIXES = (".onnx", ".pt2")
# The environment variable of a process's number, by launcher.
RANK_VARIABLES = {"pytorch": "RANK", "slurm": "SLURM_PROCID", "mpi": "OMPI_COMM_WORLD_RANK"}
_SIZE_VARIABLES = {"pytorch": "WORLD_SIZE", "slurm": "SLURM_NTASKS", "mpi": "OMPI_COMM_WORLD_SIZE"}


def find_config(name: str) -> Path:
    """Return the path of a config: a file, or a config that ships with mmlisa.

    Raises:
        FileNotFoundError: no such config; the message names the closest ones.
    """
    from mmlisa import config_path

    path = Path(name)
    if path.is_file():
        return path
    try:
        return Path(config_path(name))
    except FileNotFoundError as error:
        names = [p.name for p in path.parent.glob("*.py")] if path.parent.is_dir() else []
        near = get_close_matches(path.name, names, n=3, cutoff=0.6)
        here = f"; the closest in '{path.parent}' are {', '.join(near)}" if near else ""
        raise FileNotFoundError(f"config '{name}' does not exist{here}; {error}") from error


def check_exported(argument: str, name: str | Path) -> None:
    """Check that ``mmlisa export`` can write a file: its suffix is known, and its folder exists."""
    path = Path(name)
    if path.suffix not in EXPORTED_SUFFIXES:
        raise ValueError(
            f"{argument} '{name}' has the suffix '{path.suffix}'; it must be one of {', '.join(EXPORTED_SUFFIXES)}"
        )
    if not path.parent.is_dir():
        raise ValueError(f"folder '{path.parent}' of {argument} '{name}' does not exist; make it first")


def check_key_values(argument: str, items: Iterable[str]) -> None:
    """Check that every item is of the form ``KEY=VALUE``."""
    for item in items:
        if not re.match(r"[^=]+=", item):
            raise ValueError(f"{argument} '{item}' is not of the form KEY=VALUE")


def rank(launcher: str) -> int:
    """Return the number of this process, as the launcher sets it before anything is initialised.

    Raises:
        ValueError: the launcher's variable is missing or not a whole number.
    """
    variable = RANK_VARIABLES.get(launcher)
    if variable is None:  # a single process, whatever another program left in the environment
        return 0
    value = os.environ.get(variable)
    if value is None:
        start = "; start the tool with `torchrun`, see docs/multi_gpu.md" if launcher == "pytorch" else ""
        raise ValueError(f"--launcher '{launcher}': the environment variable {variable} is not set{start}")
    if not value.isdecimal():
        raise ValueError(f"--launcher '{launcher}': {variable}='{value}' in the environment is not a whole number")
    return int(value)


def count_processes(launcher: str | None) -> int:
    """Return the number of processes of a training, as the launcher sets it before anything is initialised."""
    return int(os.environ.get(_SIZE_VARIABLES.get(launcher, ""), 1))
