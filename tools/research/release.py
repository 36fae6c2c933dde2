"""Every figure that README, the benchmark pages, ``docs/choosing.md`` and the demo table print, measured at one commit.

Each step is a command in a process of its own. ``release.json`` holds the stamp and the seconds of the finished steps, so that
a run that was stopped goes on where it was. The pages hold tables between marks, and one stamp::

    <!-- measured: ratios -->  …  <!-- /measured -->
    <!-- measured: stamp -->  …  <!-- /measured -->
"""

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import torch

from mmlisa.checkpoints.writing import writing_whole
from mmlisa.processors import Others

from . import deploy_benchmark
from .benchmark import BASELINE
from .environment import commit_of_code
from .model_zoo import read_measured

QUIET = 0.1  # share of the processors' time that others may take
_WATCHED = 3  # seconds
DEMOS = ("mask_rcnn_hylisanet", "semantic_fpn_hylisanet", "classifier_hylisanet")  # one per task
# Networks of the tables, by the name of the table.
NETWORKS = {
    "ratios": ("HyLiSANet-S", "LiSANet-S", "FLatten-Swin-T", "iViT-T"),
    "newer": ("MILA-T", "H-ViT3-T", "Pola-Swin-T", "HyLiSANet-S", "FLatten-Swin-T", "iViT-T", "ConvNeXt-T"),
}
DEPLOYED = (
    *(*NETWORKS["ratios"], BASELINE),
    *(f"PicoDet-S 416, {backbone}" for backbone in ("LCNet", "Castling-LCNet", "Castling-ESNet")),
)
# Layers of the table over the number of tokens.
LAYERS = (
    "softmax (SDPA)",
    "InLine",
    "agent (49)",
    "TTT (gated unit)",
    "MALA",
    "RALA",
    "MILA",
    "polarity-aware",
    "LiSA",
)
# Metrics in the last validation of a demo.
METRICS = {
    "coco/bbox_mAP_50": "bbox AP50 {:.3f}",
    "coco/segm_mAP_50": "segm AP50 {:.3f}",
    "mIoU": "mIoU {:.1f}",
    "accuracy/top1": "top-1 {:.1f} %",
}
_SUITE = ("tools/benchmark.py", "--threads", "2", "--suite")
_DEPLOY = ("tools/benchmark.py", "--suite", "deploy", "--no-compile")
_ROUNDS = ("--rounds", "3")  # of what takes seconds per sample: all of it must end within two hours
WORK_DIR = "work_dirs/release/{commit}"  # a log of another commit is never taken for one of this
STEPS: dict[str, tuple[str, ...]] = {
    **{suite: (*_SUITE, suite) for suite in ("operators", "scaling", "compile")},
    **{suite: (*_SUITE, suite, *_ROUNDS) for suite in ("backbones", "detectors", "profile")},
    # Of PVTv2 and CAFormer, whose attention is quadratic, one image of 1792x1792 takes up to 40 s.
    "pixels": (*_SUITE, "pixels", *_ROUNDS, "--models", *NETWORKS["newer"], "LiSANet-S", BASELINE),
    "training": (*_SUITE, "training", "--size", "224x224", "512x512", *_ROUNDS),
    "deploy": (*_DEPLOY, "--size", "224x224", "416x416", "800x1344", *_ROUNDS, "--models", *DEPLOYED),
    "forms": ("tools/benchmark.py", "--suite", "forms", "--threads", "1"),
    **{name: ("tools/train.py", f"configs/{name}_demo.py", "--work-dir", f"{WORK_DIR}/{name}") for name in DEMOS},
    "model_zoo": ("tools/model_zoo.py",),
}
PAGES = (
    "README.md",
    "docs/benchmarks/README.md",
    "docs/benchmarks/deploy.md",
    "docs/choosing.md",
    "docs/first_hour.md",
    "docs/newer.md",
)


@dataclass
class Release:
    """Stamp and progress, as in ``release.json``: seconds of the finished steps, and rows of the table of demos."""

    commit: str
    day: str
    machine: str
    versions: str
    seconds: dict[str, float] = field(default_factory=dict)
    demos: dict[str, list[str]] = field(default_factory=dict)

    @property
    def stamp(self) -> str:
        return f"*Measured at commit {self.commit} on {self.day}: {self.machine}; {self.versions}.*\n"


def measure(root: Path, steps: Mapping[str, Sequence[str]] = STEPS, busy: Callable[[], float] | None = None) -> Release:
    """Run the steps that are not done, then write the tables and stamps of the pages.

    Args:
        root: the clone.
        steps: commands by name, from the root of the clone; ``{commit}`` stands for the measured one.
        busy: returns the share of the processors' time that other processes take; by default it is watched for three seconds.

    Raises:
        ValueError: code that is not committed, or a busy machine.
        subprocess.CalledProcessError: a step failed; the finished ones are kept.
    """
    file, busy = root / "docs" / "benchmarks" / "release.json", busy or share_of_others
    release = current(root)
    if file.is_file():
        before = Release(**json.loads(file.read_text()))
        if before.commit == release.commit:
            release = before
        else:
            print(f"{file} was measured at {before.commit}; the code is that of {release.commit}: all steps run again")
    for name, command in steps.items():
        if name in release.seconds:
            continue
        if (share := busy()) > QUIET:
            raise ValueError(
                f"other processes take {share:.0%} of the processors' time; end them, then repeat the command"
            )
        command = [part.format(commit=release.commit) for part in command]
        print(f"{name}: {' '.join(command)}", flush=True)
        start = monotonic()
        subprocess.run([sys.executable, *command], cwd=root, check=True)
        release.seconds[name] = round(monotonic() - start, 1)
        if name in DEMOS:
            release.demos[name] = _demo(root / WORK_DIR.format(commit=release.commit) / name)
        with writing_whole(file) as target:
            target.write(json.dumps(asdict(release), indent=1).encode() + b"\n")
    blocks = tables(root, release)
    for page in PAGES:
        if (root / page).is_file():
            fill(root / page, blocks)
    print(f"{len(steps)} steps took {sum(release.seconds.values()) / 60:.0f} minutes")
    return release


def current(root: Path) -> Release:
    """Return the stamp of a measurement that begins now.

    Raises:
        ValueError: code that is not committed.
    """
    commit, changed = commit_of_code(root)
    if changed:
        raise ValueError(f"{changed} differs from the last commit; commit it, so that the figures have a commit")
    machine = f"{os.cpu_count()} cores, {_processor()}"
    return Release(
        commit, str(date.today()), machine, f"PyTorch {torch.__version__}, Python {platform.python_version()}"
    )


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*: (.+)$", info.read_text(), re.MULTILINE) if info.is_file() else None
    return found[1] if found else platform.processor() or platform.machine()


def share_of_others() -> float:
    """Return the share of the processors' time that other processes take while this one sleeps."""
    others = Others()
    sleep(_WATCHED)
    return others() / (os.cpu_count() or 1)


def tables(root: Path, release: Release) -> dict[str, str]:
    """Return the stamp and the tables of the pages by name. They come from the files of ``docs/benchmarks`` and ``release``."""
    folder = root / "docs" / "benchmarks"
    suites = read_measured(folder, ("backbones", "detectors", "training", "pixels"))
    lines = {
        "inference at 224x224, time": ("backbones", "224x224", "seconds"),
        "inference at 800x1344, time": ("backbones", "800x1344", "seconds"),
        "the same, peak memory": ("backbones", "800x1344", "peak_bytes"),
        "Mask R-CNN, prediction, time": ("detectors", "800x1344", "seconds"),
        "training step at 512x512, time": ("training", "512x512", "seconds"),
        "the same, tensors saved for the backward pass": ("training", "512x512", "saved_bytes"),
    }
    ratios = {
        block: _table(
            [f"over {BASELINE}'s", *names],
            [
                [title, *(_ratio(suites[suite], name, case, key) for name in names)]
                for title, (suite, case, key) in lines.items()
            ],
        )
        for block, names in NETWORKS.items()
    }
    pixels = [name for name, case in suites["pixels"] if case == "1792x1792"]
    growth = [
        f"{suites['pixels'][name, '1792x1792']['ns_per_pixel'] / suites['pixels'][name, '224x224']['ns_per_pixel']:.2f}"
        for name in pixels
    ]
    demos = [
        [f"`{name}`", *release.demos.get(name, ["–", "–"]), f"{release.seconds.get(name, 0) / 60:.1f}"]
        for name in DEMOS
    ]
    return {
        **ratios,
        "pixels": _table(["time per pixel, 1792x1792 over 224x224", *pixels], [["", *growth]]),
        "scaling": _scaling(json.loads((folder / "scaling_cpu.json").read_text())["rows"]),
        "demos": _table(["NAME", "measured", "iterations", "minutes"], demos),
        "deploy": deploy_benchmark.to_markdown(json.loads((folder / "deploy.json").read_text())["rows"]),
        "stamp": release.stamp,
    }


def _ratio(rows: Mapping[tuple[str, str], Mapping[str, Any]], name: str, case: str, key: str) -> str:
    if (name, case) not in rows or (BASELINE, case) not in rows:
        return "–"
    return f"{rows[name, case][key] / rows[BASELINE, case][key]:.2f}"


def _scaling(rows: Sequence[Mapping[str, Any]]) -> str:
    """Milliseconds of a forward pass by grid and layer, and the memory on the last grid."""
    found = {(row["case"], row["name"]): row for row in rows}
    *_, last = cases = list(dict.fromkeys(row["case"] for row in rows))
    names = [name for name in LAYERS if (last, name) in found]
    times = [[case, *(_rounded(1e3 * found[case, name]["seconds"]) for name in names)] for case in cases]
    memory = [f"peak memory at {last}, MB", *(f"{found[last, name]['peak_bytes'] / 1e6:.0f}" for name in names)]
    return _table(["ms", *names], [*times, memory])


def _rounded(value: float) -> str:
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


def _demo(folder: Path) -> list[str]:
    """Metrics and iterations of the last validation in the logs of a demo."""
    log = max(folder.glob("*/vis_data/2*.json"))
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    last = next(entry for entry in reversed(entries) if METRICS.keys() & entry.keys())
    return [", ".join(text.format(last[key]) for key, text in METRICS.items() if key in last), str(last["step"])]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in (header, ["---"] * len(header), *rows))


def fill(page: Path, blocks: Mapping[str, str]) -> None:
    """Replace what stands between the marks of ``blocks`` in a page.

    Raises:
        ValueError: a mark without an end, or with an unknown name.
    """

    def block(found: re.Match[str]) -> str:
        if found[2] not in blocks:
            raise ValueError(f"{page} has a mark '{found[2]}'; the tables are {', '.join(blocks)}")
        return f"{found[1]}\n\n{blocks[found[2]]}\n<!-- /measured -->"

    text = page.read_text(encoding="utf-8")
    filled, count = re.subn(
        r"(<!-- measured: (\w+) -->)\n(?:(?!<!-- measured).)*?<!-- /measured -->", block, text, flags=re.DOTALL
    )
    if count != text.count("<!-- measured: "):
        raise ValueError(f"{page} has a mark '<!-- measured: … -->' without '<!-- /measured -->'")
    with writing_whole(page) as target:
        target.write(filled.encode())
