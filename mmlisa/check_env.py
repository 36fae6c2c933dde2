"""Report what is installed, what is missing or broken, and the command that fixes it.

    python -m mmlisa.check_env

The exit status is 1 if a package that mmlisa's tools need is missing or broken. This module imports the standard library only.
The packages are imported in another process, so that an import that crashes becomes a line of the report.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from typing import NamedTuple

from mmlisa import cli, mmcv_ops
from mmlisa.mmcv_ops.missing import build_mmcv_command, install_command
from mmlisa.probes import run_probes

# Names to import where they differ from those of the distributions, without the prefix "onedl-".
IMPORTS = {"mmdetection": "mmdet", "mmsegmentation": "mmseg", "pillow": "PIL"}
# torch and torchvision must be a matching pair. The tests run with this one.
TESTED_PAIR = ("torch==2.12.1", "torchvision==0.27.1")
_BOXES = "torch.tensor([[0., 0., 1., 1.]]), torch.tensor([1.])"
# Code that fails where the package does, for packages whose import alone would not.
PROBES = {
    "torchvision": f"import torch, torchvision; torchvision.ops.nms({_BOXES}, 0.5)",
    "mmpretrain": "import mmlisa, mmpretrain.models",
    "mmcv ops": f"import mmlisa, torch; from mmcv.ops import nms; nms({_BOXES}, 0.5)\n"
    f"if torch.cuda.is_available(): nms(*(t.cuda() for t in ({_BOXES})), 0.5)",
    "environment": "import json; from mmengine.utils.dl_utils import collect_env\n"
    "print(json.dumps({key: str(value) for key, value in collect_env().items()}))",
}


class Row(NamedTuple):
    """A line of the report; ``problem`` is empty if all is well, ``fix`` is the command for it."""

    name: str
    version: str
    problem: str = ""
    fix: str = ""
    needed: bool = True


def installed_version(distribution: str) -> str | None:
    """Return the version of a distribution, or None if it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def requirements() -> dict[str, dict[str, str]]:
    """Return mmlisa's requirements, bounds included, by extra and distribution; ``''`` is what every use needs."""
    found: dict[str, dict[str, str]] = {"": {"torchvision": "torchvision"}}
    for line in metadata.requires("mmlisa") or ():
        requirement, _, condition = line.partition(";")
        extra = re.search(r"""extra == ['"]([\w-]+)""", condition)
        found.setdefault(extra[1] if extra else "", {})[re.match(r"[\w.-]+", requirement)[0]] = requirement.strip()
    return found


def check() -> Iterator[Row]:
    """Check everything, in the order in which problems should be fixed."""
    if installed_version("mmlisa") is None:
        yield Row("mmlisa", "-", "missing", install_command("mmlisa[onedl,demo]"))
        return
    extras = requirements()
    present = {
        family: [name for name in extras[family] if installed_version(name)] for family in ("onedl", "openmmlab")
    }
    present["openmmlab"] = [name for name in present["openmmlab"] if name.startswith("mm")]
    if all(present.values()):
        names = " ".join(present["onedl"] + present["openmmlab"])
        fix = f"{sys.executable} -m pip uninstall -y {names} && {install_command('mmlisa[onedl]')}"
        yield Row("OpenMMLab", "-", f"both families are installed, and overwrite each other: {names}", fix)
        return
    needed = extras[""] | extras["openmmlab" if present["openmmlab"] else "onedl"]
    imports = {name: IMPORTS.get(short := name.removeprefix("onedl-"), short) for name in needed}
    results = run_probes(
        {name: PROBES.get(module, f"import mmlisa, {module}") for name, module in imports.items()} | PROBES
    )
    missing = install_command(*(each for name, each in needed.items() if installed_version(name) is None))
    for name, requirement in needed.items():
        version, (error, _) = installed_version(name), results[name]
        bound = re.search(r">=([\d.]+)", requirement)
        if version is None:
            yield Row(name, "-", "missing", missing)
        elif bound and _numbers(version) < _numbers(bound[1]):
            yield Row(name, version, f"older than {bound[1]}", install_command(requirement))
        elif error and imports[name] == "mmpretrain" and (other := installed_version("transformers")):
            yield Row(
                name, version, f"import fails beside transformers {other}: {error}", install_command("transformers<5")
            )
        else:
            yield Row(name, version, f"import fails: {error}" if error else "", _fix(name, requirement, error))
    compiled, (error, _) = mmcv_ops.find_compiled(), results["mmcv ops"]
    fix = build_mmcv_command(cuda="CUDA" in error) if compiled else ""  # torchvision's have their own row
    yield Row("mmcv ops", "compiled" if compiled else "torchvision's", f"do not work: {error}" if error else "", fix)
    for name in extras["demo"]:
        version = installed_version(name)
        yield Row(name, version or "-", "" if version else "missing", install_command("mmlisa[demo]"), needed=False)
    for name, value in json.loads(results["environment"][1] or "{}").items():
        if name in ("Python", "CUDA available", "GPU 0", "GCC", "OpenCV"):
            yield Row(name, value.splitlines()[0])


def _numbers(version: str) -> list[int]:
    """Return the leading numbers of a version: ``'2.12.1+cpu' -> [2, 12, 1]``."""
    return [int(number) for number in re.match(r"[\d.]*\d", version)[0].split(".")]


def _fix(name: str, requirement: str, error: str) -> str:
    """Return the command for an import that fails with ``error``."""
    if name in ("torch", "torchvision"):
        return install_command(*TESTED_PAIR)
    if absent := re.search(r"No module named '(\w+)", error):
        return install_command(absent[1])
    # For example "MMCV==2.2.0 is used but incompatible. Please install mmcv>=2.0.0rc4, <2.2.0."
    if clash := re.search(r"[Pp]lease install (mm\w+>=[\w.]+), ?(<=?[\w.]*\w)", error):
        return install_command(f"{clash[1]},{clash[2]}")
    if "libGL" in error:  # of OpenCV, on machines without a screen
        return "apt-get install -y libgl1 libglib2.0-0"
    return install_command(requirement, options="--force-reinstall --no-deps --no-cache-dir")


def format_report(rows: Sequence[Row]) -> str:
    """Return the table, and below it the command for each problem."""
    widths = [max(len(row[i]) for row in rows) for i in (0, 1)]
    lines, commands = [], {}
    for name, version, problem, fix, needed in rows:
        lines.append(f"{name:<{widths[0]}}  {version:<{widths[1]}}  {problem or 'ok'}{' (optional)' * (not needed)}")
        if problem:
            commands.setdefault(fix or "(solved by the other commands)", []).append(name)
    end = ["To fix it, run these in this order (in a clone of mmlisa, `uv sync` first):"]
    end += [f"* {', '.join(names)}:\n    {command}" for command, names in commands.items()]
    return "\n".join([*lines, "", *(end if commands else ["Everything is installed and works."])])


def main(argv: Sequence[str] | None = None) -> None:
    cli.build_parser(__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args(argv)
    rows = list(check())
    print(format_report(rows))
    sys.exit(any(row.problem and row.needed for row in rows))


if __name__ == "__main__":
    main()
