"""What is installed, what is missing or broken, and the exact command that fixes it.

    python -m mmlisa.check_env

Exits with 1 if something mmlisa's tools need is missing or broken. Imports nothing but the standard library; everything else is
tried in other processes, so that an import that crashes is a line of the table.
"""

import argparse
import importlib.metadata
import json
import platform
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import NamedTuple

from mmlisa import cli, mmcv_ops

# Bounds as in pyproject.toml; torch and torchvision must be a pair, and this one is what the tests run on.
PYTHON = (3, 10)
REQUIREMENTS = {"torch": "2.4.1", "timm": "1.0.22"}
TESTED_PAIR = ("torch==2.12.1", "torchvision==0.27.1")
# The OpenMMLab packages come in two families that share their import names: distribution and lower bound by import name.
FAMILIES = {
    "onedl": {
        "mmengine": ("onedl-mmengine", "0.10.12"),
        "mmcv": ("onedl-mmcv", "2.3.6"),
        "mmdet": ("onedl-mmdetection", "3.5.1"),
        "mmseg": ("onedl-mmsegmentation", "1.4.2"),
        "mmpretrain": ("onedl-mmpretrain", "1.3.6"),
    },
    "openmmlab": {
        "mmengine": ("mmengine", "0.10.5"),
        "mmcv": ("mmcv", "2.1,<2.2"),  # mmdet 3.3 refuses later ones
        "mmdet": ("mmdet", "3.3"),
        "mmseg": ("mmsegmentation", "1.2.2"),
        "mmpretrain": ("mmpretrain", "1.2"),
    },
}
# The `demo` extra, distribution by import name.
DEMO = {
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "imgaug": "imaug",
    "pycocotools": "pycocotools",
    "matplotlib": "matplotlib",
}
# Each prints the version (or what else is worth a column) last, and fails where the package does.
_VERSION_OF = "import {0}; print(getattr({0}, '__version__', 'installed'))"
# Seconds to import, and nothing of their own to break but what stands in other rows: it is enough that they are there.
_FOUND = "from importlib.util import find_spec; assert find_spec('{0}'), \"No module named '{0}'\"; print('installed')"
_BOXES = "torch.tensor([[0., 0., 1., 1.]]), torch.tensor([1.])"
PROBES = {
    "torch": _VERSION_OF.format("torch"),
    "torchvision": f"import torch, torchvision; torchvision.ops.nms({_BOXES}, 0.5); print(torchvision.__version__)",
    "CUDA": "import torch; print(f'{torch.version.cuda}, {torch.cuda.get_device_name()}' if torch.cuda.is_available() else '')",
    "mmcv ops": f"""
import mmlisa, torch
from mmcv.ops import nms
nms({_BOXES}, 0.5)
try:
    if torch.cuda.is_available():
        nms(*(t.cuda() for t in ({_BOXES})), 0.5)
    print()
except Exception as error:
    print("on CUDA:", str(error).splitlines()[0])
""",
    **{name: _VERSION_OF.format(name) for name in FAMILIES["onedl"]},
    **{name: _FOUND.format(name) for name in ("timm", *DEMO)},
}
# What mmcv's operators are compiled with. It is built on the spot, by default without torch in sight: then it has none.
_BUILD_TOOLS = ("setuptools>=77,<81", "wheel", "ninja", "packaging", "numpy")
# For a package that is there but broken; without the cache, which may hold the very wheel that is.
_ANEW = "--force-reinstall --no-deps --no-cache-dir"


class Result(NamedTuple):
    """How a probe ended: whether well, and its last line (of the output or of the error)."""

    ok: bool
    text: str


class Row(NamedTuple):
    """One line of the table; ``problem`` is empty when all is well, ``fix`` the commands for it by tool."""

    name: str
    version: str
    note: str = ""
    problem: str = ""
    needed: bool = True
    fix: dict[str, str] = {}  # noqa: RUF012


# Runs probes one after the other and reports each on the original stdout as it ends; what they print themselves goes elsewhere.
_RUNNER = """
import contextlib, io, json, os, sys, traceback
report = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
for name, code in json.loads(sys.argv[1]).items():
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(code, {})
        ok, text = True, printed.getvalue()
    except BaseException as error:
        ok, text = False, "".join(traceback.format_exception_only(error))
    lines = text.strip().splitlines()
    print(json.dumps([name, ok, lines[-1].strip() if lines else ""]), file=report, flush=True)
"""


def run_probes(probes: dict[str, str], timeout: float = 300) -> dict[str, Result]:
    """Runs code by name in one process, so that what it imports is imported once; after a crash, the rest in another."""
    results: dict[str, Result] = {}
    while rest := {name: code for name, code in probes.items() if name not in results}:
        command = [sys.executable, "-c", _RUNNER, json.dumps(rest)]
        try:
            done = subprocess.run(command, capture_output=True, timeout=timeout)
            output, end = done.stdout, f"crashed (signal {-done.returncode})"
        except subprocess.TimeoutExpired as stopped:
            output, end = stopped.stdout or b"", f"did not finish within {timeout:.0f} s"
        reports = [json.loads(line) for line in output.decode(errors="replace").splitlines()]
        results |= {name: Result(ok, text) for name, ok, text in reports}
        culprit = next((name for name in rest if name not in results), None)
        if culprit:
            results[culprit] = Result(False, end)
    return results


def installed_version(distribution: str) -> str | None:
    """The version of a distribution, None if it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: '2.12.1+cpu' -> (2, 12, 1)."""
    leading = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, leading[0].split("."))) if leading else ()


def _pip(arguments: str) -> str:
    """A pip command for this Python; uv's environments have no pip of their own."""
    if find_spec("pip"):
        return f"{sys.executable} -m pip {arguments}"
    command, _, rest = arguments.partition(" ")
    # From the root: in a clone, uv would hold the packages to the settings of its pyproject.toml.
    return f"uv pip {command} --directory / --python {sys.executable} {rest.removeprefix('-y ')}"


def _install(*requirements: str, options: str = "") -> str:
    return _pip(" ".join(["install", *options.split(), *(f'"{requirement}"' for requirement in requirements)]))


def _build(*requirements: str, variables: str = "MMCV_WITH_OPS=1") -> str:
    """The pip commands that compile mmcv's operators: with torch, and a compiler, at hand."""
    install = _install(*requirements, options=f"--no-build-isolation {_ANEW}")
    return f"{_install(*_BUILD_TOOLS)} && {variables} {install}"


def build_mmcv_command(cuda: bool = False) -> str:
    """The command that builds the mmcv of this environment with compiled operators; ``cuda``: also where no GPU is in sight."""
    family, _ = find_family()
    distribution, _ = FAMILIES[family or "onedl"]["mmcv"]
    version = installed_version(distribution)
    variables = "FORCE_CUDA=1 " * cuda + "MMCV_WITH_OPS=1"
    return _build(f"{distribution}=={version}" if version else distribution, variables=variables)


def _uv_sync(*packages: str, family: str = "onedl") -> str:
    """The command for a clone, where pyproject.toml tells uv how to build each package; ``packages`` are rebuilt."""
    extra = " --no-dev --extra openmmlab" if family == "openmmlab" else ""
    return f"uv sync{extra}" + "".join(f" --reinstall-package {package}" for package in packages)


def find_family() -> tuple[str | None, dict[str, list[str]]]:
    """Which family is installed, None for neither or both, and the installed distributions of each."""
    present = {
        family: [name for name, _ in packages.values() if installed_version(name) is not None]
        for family, packages in FAMILIES.items()
    }
    found = [family for family, names in present.items() if names]
    return (found[0] if len(found) == 1 else None), present


def check() -> list[Row]:
    """Looks at everything; the rows are in the order in which things are to be fixed."""
    results = run_probes(PROBES)
    return [_python(), *_torch(results), *_openmmlab(results), *_demo(results)]


def _python() -> Row:
    if sys.version_info[:2] >= PYTHON:
        return Row("Python", platform.python_version())
    wanted = ".".join(map(str, PYTHON))
    fix = {"uv": "uv sync --python 3.11", "pip": f"python3.11 -m venv .venv (or another Python >= {wanted})"}
    return Row("Python", platform.python_version(), problem=f"older than {wanted}", fix=fix)


def _package(name: str, distribution: str, minimum: str, result: Result, fix: dict[str, str]) -> Row:
    """The row of a package that must be there, new enough and importable."""
    version = installed_version(distribution) or (result.ok and result.text)
    if not version:
        return Row(name, "-", problem="missing", fix=fix)
    if result.ok:
        old = () < _numbers(version) < _numbers(minimum.split(",")[0])
        return Row(name, version, problem=f"older than {minimum}" if old else "", fix=fix if old else {})
    absent = re.search(r"No module named '(\w+)", result.text)
    if absent and absent[1] in PROBES and absent[1] != name:  # has a row of its own
        fix = {}
    elif absent and absent[1] != name:
        fix = {"uv": _uv_sync(), "pip": _install(absent[1])}
    # Such as "MMCV==2.2.0 is used but incompatible. Please install mmcv>=2.0.0rc4, <2.2.0."
    elif clash := re.search(r"[Pp]lease install (mm\w+>=[\w.]+), ?(<=?[\w.]*\w)", result.text):
        fix = {"pip": _install(f"{clash[1]},{clash[2]}")}
    elif "libGL" in result.text:  # OpenCV's, on machines without a screen
        fix = {"apt": "apt-get install -y libgl1 libglib2.0-0"}
    return Row(name, version, problem=f"import fails: {result.text}", fix=fix)


def _torch(results: dict[str, Result]) -> Iterator[Row]:
    there = [name for name in ("torch", "torchvision") if installed_version(name)]
    both = {"uv": _uv_sync(*there), "pip": _install(*TESTED_PAIR)}
    torch = _package("torch", "torch", REQUIREMENTS["torch"], results["torch"], both)
    yield torch
    vision, fits = installed_version("torchvision") or "-", results["torchvision"]
    if fits.ok:
        yield Row("torchvision", vision, note="fits torch")
    else:
        problem = "missing" if vision == "-" else f"does not fit torch {torch.version}: {fits.text}"
        yield Row("torchvision", vision, problem=problem, fix={**both, "pip": _fit_torchvision(torch, vision)})
    cuda, _, device = results["CUDA"].text.partition(", ")
    if not results["CUDA"].ok:
        cuda, device = "", "cannot be told without torch"
    yield Row("CUDA", cuda or "-", note=device or "no GPU, everything runs on the CPU")
    fix = {
        "uv": _uv_sync(*["timm"] * bool(installed_version("timm"))),
        "pip": _install(f"timm>={REQUIREMENTS['timm']}"),
    }
    yield _package("timm", "timm", REQUIREMENTS["timm"], results["timm"], fix)


def _fit_torchvision(torch: Row, vision: str) -> str:
    """The pip command for a matching pair, one that keeps the torch that works if it can."""
    major, minor, *_ = (*_numbers(torch.version), 0, 0)
    if torch.problem or major != 2:
        return _install(*TESTED_PAIR)
    fitting = f"0.{minor + 15}"  # 0.15 came with 2.0, and so on
    if vision.startswith(f"{fitting}."):  # the numbers fit, so the builds do not: one for the CPU, one for CUDA
        return _install(*TESTED_PAIR, options="--force-reinstall")
    return _install(f"torch=={torch.version}", f"torchvision=={fitting}.*")


def _openmmlab(results: dict[str, Result]) -> Iterator[Row]:
    family, present = find_family()
    if all(present.values()):
        names = " ".join(name for family_names in present.values() for name in family_names)
        wanted = [f"{distribution}>={minimum}" for distribution, minimum in FAMILIES["onedl"].values()]
        fix = {
            "uv": f"uv pip uninstall {names} && {_uv_sync()}",
            "pip": f"{_pip(f'uninstall -y {names}')} && {_install(*wanted)}",
        }
        yield Row("family", "-", problem=f"both are installed, over each other: {names}", fix=fix)
        return  # what is left of either is anybody's guess
    note = {
        "onedl": "the maintained one",
        "openmmlab": "the original one",
        None: "neither; the commands below install onedl",
    }
    yield Row("family", family or "-", note=note[family])
    family = family or "onedl"
    packages = FAMILIES[family]
    absent = [f"{name}>={minimum}" for name, minimum in packages.values() if installed_version(name) is None]
    for name, (distribution, minimum) in packages.items():
        requirement = f"{distribution}>={minimum}"
        if requirement in absent:  # all at once
            reinstall = {"uv": _uv_sync(family=family), "pip": _install(*absent)}
        else:
            reinstall = {"uv": _uv_sync(distribution, family=family), "pip": _install(requirement, options=_ANEW)}
        row = _package(name, distribution, minimum, results[name], reinstall)
        yield row
        if name == "mmcv" and not row.problem:
            yield _operators(results["mmcv ops"], _uv_sync(distribution, family=family))


def _operators(result: Result, without: str) -> Row:
    """Which operators mmcv gets, and whether they work; ``without`` is uv's command for an mmcv without compiled ones."""
    compiled = mmcv_ops.find_compiled()
    if result.ok and not result.text:
        return Row("mmcv ops", "", note="compiled" if compiled else "torchvision's, through mmlisa.mmcv_ops")
    # Compiled ones that work on the CPU lack CUDA. torchvision's are as good as torchvision, which has a row of its own.
    fix = {"uv": without, "pip": build_mmcv_command(cuda=result.ok)} if compiled else {}
    return Row("mmcv ops", "", problem=f"do not work: {result.text}", fix=fix)


def _demo(results: dict[str, Result]) -> Iterator[Row]:
    absent = [distribution for distribution in DEMO.values() if installed_version(distribution) is None]
    for name, distribution in DEMO.items():
        if distribution in absent:
            fix = {"uv": _uv_sync(), "pip": _install(*absent)}
        else:
            fix = {"uv": _uv_sync(distribution), "pip": _install(distribution, options=_ANEW)}
        row = _package(distribution, distribution, "0", results[name], fix)
        yield row._replace(needed=False, note="for the demo data")


def format_report(rows: list[Row]) -> str:
    """The table, and below it what to do about each problem."""
    cells = [("", "version", "status")]
    for row in rows:
        good = f"ok: {row.note}" if row.note else "ok"
        cells.append((row.name, row.version, row.problem + " (optional)" * (not row.needed) if row.problem else good))
    widths = [max(len(line[i]) for line in cells) for i in (0, 1)]
    lines = [f"{name:<{widths[0]}}  {version:<{widths[1]}}  {status}" for name, version, status in cells]
    problems = [row for row in rows if row.problem]
    if not problems:
        return "\n".join([*lines, "", "Everything is there."])
    lines += ["", "To fix it, in this order (uv: in a clone of mmlisa; pip: anywhere), then run this again:"]
    together: dict[tuple, list[str]] = {}
    for row in problems:
        together.setdefault((row.problem, *row.fix.items()), []).append(row.name)
    for (problem, *fix), names in together.items():
        lines.append(f"* {', '.join(names)}: {problem}")
        lines += [f"    {tool + ':':<4} {command}" for tool, command in fix] or ["    goes away with what is above"]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    parser = cli.build_parser(__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args(argv)
    rows = check()
    sys.stdout.write(format_report(rows) + "\n")
    sys.exit(any(row.problem and row.needed for row in rows))


if __name__ == "__main__":
    main()
