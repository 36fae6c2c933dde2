"""Checks of command-line arguments that need no library: files, folders, devices, numbers, launchers.

:func:`check` looks at every argument whose name it knows, in the same way for every tool. :func:`mmlisa.cli.run` calls it before
the tool imports anything, so that a mistake is reported in a fraction of a second.
"""

import argparse
import ctypes
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Any

CONFIG_SUFFIXES = (".py", ".json", ".yml", ".yaml")
CHECKPOINT_SUFFIXES = (".pth", ".pt", ".ckpt", ".pdparams", ".safetensors", ".bin")
EXPORTED_SUFFIXES = (".onnx", ".pt2")
DEVICES = ("cpu", "cuda", "mps", "xpu", "npu", "mlu", "musa")
_ACCELERATORS = ("torch_npu", "torch_mlu", "torch_musa", "torch_dipu")  # PyTorch's extensions that MMEngine supports
# The environment variable of a process's number, by launcher.
RANK_VARIABLES = {"pytorch": "RANK", "slurm": "SLURM_PROCID", "mpi": "OMPI_COMM_WORLD_RANK"}
_SIZE_VARIABLES = {"pytorch": "WORLD_SIZE", "slurm": "SLURM_NTASKS", "mpi": "OMPI_COMM_WORLD_SIZE"}


def check(args: argparse.Namespace) -> None:
    """Check the arguments of a tool by their names, and write the home folder for ``~`` in paths, which some shells leave.

    Raises:
        FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError: a path that cannot be read or written.
        ValueError: any other invalid argument. The message names the argument, its value and the remedy.
    """
    for name, value in vars(args).items():
        if name in CHECKS and value is not None:
            value = [_without_tilde(each) for each in value] if isinstance(value, list) else _without_tilde(value)
            setattr(args, name, value)
            CHECKS[name](name.upper() if name in _POSITIONAL else f"--{name.replace('_', '-')}", value)


def _without_tilde(value: Any) -> Any:
    is_path = isinstance(value, str | Path) and str(value).startswith("~")
    return type(value)(os.path.expanduser(value)) if is_path else value


# --- files and folders ---------------------------------------------------------------------------------------------------------


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


def check_config(argument: str, name: str) -> None:
    """Check that ``name`` is a config file, or the name of a config that ships with mmlisa."""
    path = Path(name)
    if path.suffix in CHECKPOINT_SUFFIXES:
        raise ValueError(
            f"{argument} '{name}' is a checkpoint, not a config: the config comes first, then the checkpoint"
        )
    if path.is_dir():
        raise IsADirectoryError(f"{argument} '{name}' is a folder, not a config file")
    path = find_config(name)
    if path.suffix not in CONFIG_SUFFIXES:
        raise ValueError(f"{argument} '{name}' is not a config: its suffix must be one of {', '.join(CONFIG_SUFFIXES)}")
    if path.suffix == ".json":
        with path.open("rb") as file:
            beginning = file.read(1 << 20)
        if re.search(rb'"(annotations|images|categories)"\s*:\s*\[', beginning):
            raise ValueError(
                f"{argument} '{name}' is a COCO annotation file, not a config; a config names it as "
                "train_dataloader.dataset.ann_file"
            )


def check_checkpoint(argument: str, name: str) -> None:
    """Check that ``name`` is a file with weights, an address, or ``none``."""
    if name in ("none", "auto") or re.match(r"[\w+-]{2,}:", name):
        return
    path = Path(name).expanduser()
    if path.suffix == ".py":
        raise ValueError(
            f"{argument} '{name}' is a config, not a checkpoint: the config comes first, then the checkpoint"
        )
    if path.is_dir():
        found = ", ".join(sorted(p.name for p in path.glob("*.pth"))) or "no *.pth file"
        raise IsADirectoryError(f"{argument} '{name}' is a folder, not a checkpoint file; it holds {found}")
    if not path.exists():
        raise FileNotFoundError(f"{argument} '{name}' does not exist")


def check_inputs(argument: str, names: Iterable[str | Path]) -> None:
    """Check that every input exists."""
    for name in names:
        if not Path(name).expanduser().exists():
            raise FileNotFoundError(f"{argument} '{name}' does not exist")


def check_folder(argument: str, name: str | Path) -> None:
    """Check that files can be written into a folder, which need not exist."""
    path = Path(name).expanduser().absolute()
    existing = next(p for p in (path, *path.parents) if p.exists() or p.is_symlink())
    if not existing.is_dir():
        raise NotADirectoryError(f"{argument} '{name}' cannot be written: '{existing}' is not a folder; name another")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise PermissionError(f"{argument} '{name}' cannot be written: no permission to write into '{existing}'")


def check_file(argument: str, name: str | Path) -> None:
    """Check that a file can be written. A folder passes, because some tools write several files into it."""
    path = Path(name).expanduser()
    check_folder(argument, path if path.is_dir() else path.parent)


def check_json(argument: str, name: str | Path) -> None:
    """Check that a file can be written, and is no folder."""
    if Path(name).is_dir():
        raise IsADirectoryError(f"{argument} '{name}' is a folder; name a file in it")
    check_file(argument, name)


def check_exported(argument: str, name: str | Path) -> None:
    """Check that ``mmlisa export`` can write a file: its suffix is known, and its folder exists."""
    path = Path(name)
    if path.suffix not in EXPORTED_SUFFIXES:
        raise ValueError(
            f"{argument} '{name}' has the suffix '{path.suffix}'; it must be one of {', '.join(EXPORTED_SUFFIXES)}"
        )
    if not path.parent.is_dir():
        raise ValueError(f"folder '{path.parent}' of {argument} '{name}' does not exist; make it first")


# --- values --------------------------------------------------------------------------------------------------------------------


def check_share(argument: str, value: float) -> None:
    """Check that a number lies between 0 and 1."""
    if not 0 <= value <= 1:
        hint = f"; did you mean {value / 100:g}?" if 1 < value <= 100 else ""
        raise ValueError(f"{argument} '{value:g}' is not a number from 0 to 1{hint}")


def check_positive(argument: str, value: Any) -> None:
    """Check that a number, or each number of a list, is finite and greater than 0."""
    if isinstance(value, list | tuple):
        for each in value:
            check_positive(argument, each)
    elif not 0 < value < math.inf:
        raise ValueError(f"{argument} '{value}' is not a finite number greater than 0")


def check_key_values(argument: str, items: Iterable[str]) -> None:
    """Check that every item is of the form ``KEY=VALUE``."""
    for item in items:
        if not re.match(r"[^=]+=", item):
            raise ValueError(f"{argument} '{item}' is not of the form KEY=VALUE")


def check_device(argument: str, name: str) -> None:
    """Check the name of a device, and that a GPU exists if it names one. PyTorch is not imported."""
    kind, separator, index = name.partition(":")
    if kind not in DEVICES:
        hint = "did you mean 'cuda'?" if kind in ("gpu", "nvidia") else f"devices are {', '.join(DEVICES)}"
        raise ValueError(f"{argument} '{name}' is not a device; {hint}")
    if separator and not index.isdigit():
        raise ValueError(f"{argument} '{name}': a whole number must follow the colon, as in '{kind}:0'")
    number = count_cuda_devices() if kind == "cuda" else None
    if number == 0:
        raise ValueError(f"{argument} '{name}': no NVIDIA GPU, or no driver, was found; use '{argument} cpu'")
    if number is not None and int(index or 0) >= number:
        raise ValueError(f"{argument} '{name}': this machine has {number} GPUs, 'cuda:0' to 'cuda:{number - 1}'")


def check_amp(argument: str, enabled: bool) -> None:
    """Check that there is a GPU, or a package of another accelerator, if mixed precision is requested."""
    if enabled and count_cuda_devices() == 0 and not any(map(find_spec, _ACCELERATORS)):
        raise ValueError(f"{argument}: no NVIDIA GPU, or no driver, was found; train without {argument}")


def select_device(name: str) -> None:
    """Make a device the one that MMEngine trains on, in this process and in those that it starts. PyTorch is imported later.

    MMEngine takes the first GPU that it sees, else Apple's, else the CPU. Numbers count the GPUs that the environment shows.
    """
    kind, _, index = name.partition(":")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    number = int(index or 0)
    chosen = visible[number].strip() if visible[0] and number < len(visible) else str(number)
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1" if kind == "cpu" else chosen


_COUNT_DEVICES = """
import ctypes, sys
driver, count = ctypes.CDLL(sys.argv[1]), ctypes.c_int()
if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0:
    print(count.value)
"""


def count_cuda_devices() -> int | None:
    """Return the number of GPUs that the NVIDIA driver shows to this process; None if only PyTorch can tell (AMD's GPUs)."""
    library = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        ctypes.CDLL(library)
    except OSError:
        return None if Path("/dev/kfd").exists() else 0
    # Another process asks: from its first call on, the driver ignores what :func:`select_device` sets.
    asked = subprocess.run([sys.executable, "-S", "-c", _COUNT_DEVICES, library], capture_output=True, text=True)
    return int(asked.stdout or 0)


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


def set_local_rank(launcher: str, number: int) -> None:
    """Set ``LOCAL_RANK``, the GPU of MMEngine's model wrapper, if the launcher has not set it.

    mpirun numbers the processes of a machine in another variable, which MMEngine reads only to choose the GPU of the model.
    ``number`` is the option ``--local_rank`` of the other launchers.
    """
    counted = os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK") if launcher == "mpi" else None
    os.environ.setdefault("LOCAL_RANK", counted or str(number))


def count_processes(launcher: str | None) -> int:
    """Return the number of processes of a training, as the launcher sets it before anything is initialised."""
    return int(os.environ.get(_SIZE_VARIABLES.get(launcher, ""), 1))


CHECKS: dict[str, Callable[[str, Any], None]] = {
    "config": check_config,
    **dict.fromkeys(("checkpoint", "resume"), check_checkpoint),
    "images": check_inputs,
    **dict.fromkeys(("work_dir", "out_dir", "show_dir"), check_folder),
    "out": check_file,
    "json": check_json,
    **dict.fromkeys(("score_thr", "min_matched"), check_share),
    **dict.fromkeys(("size", "factors", "tolerance", "batch", "rounds", "threads", "jobs"), check_positive),
    **dict.fromkeys(
        ("epochs", "minutes", "iterations", "every", "seeds", "train_images", "val_images"), check_positive
    ),
    "cfg_options": check_key_values,
    "device": check_device,
    "amp": check_amp,
    "launcher": lambda argument, launcher: rank(launcher),
}
_POSITIONAL = ("config", "checkpoint", "images")
