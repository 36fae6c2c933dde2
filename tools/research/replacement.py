"""Replacement of the attention in a trained detector, by operator, start and number of replaced stages.

The host is a narrow Swin under the narrow Mask R-CNN of the comparisons, trained on the demo scenes until its accuracy stays.
Another operator then takes the place of its window attention, and every run trains for the same CPU seconds.
"""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .comparison import suites
from .comparison.jobs import Job, list_jobs, read, slug
from .comparison.processes import run_all
from .comparison.report import Row, Sample, difference, pooled_deviation
from .comparison.suites import BACKBONES, Candidate, Comparison, Delta

ROOT = Path("work_dirs/replacement")
SIZE, SEEDS, HOST_ITERATIONS, SECONDS = 128, (1, 2, 3), 1500, 30
_ENDLESS = 10**6  # iterations of a training that ends with its budget of seconds

WINDOWS, NOTHING = "windows", "nothing"
OPERATORS: dict[str, Delta] = {
    WINDOWS: {},  # the host's own attention
    # The tokens minus themselves: what the host is without attention.
    NOTHING: dict(type="AveragePooling", kernel_size=1),
    "focused linear": suites.OPERATORS["focused linear"],
    "LiSA": suites.OPERATORS["LiSA"],
    # With the host's biases, so that its projections are carried over as they are.
    "interactive": suites.OPERATORS["interactive"] | dict(qkv_bias=True, proj_bias=True),
    "MILA": suites.OPERATORS["MILA"],
}
_PARTIAL = ("focused linear",)  # operators that also replace the first stages only


@dataclass(frozen=True)
class Arm:
    """An operator and the number of stages that take it.

    The training starts from ``scratch``, from the ``host``, or from the host with it as a teacher (``distilled``). ``carried``
    is the network with the host's weights before its training, and ``plateau`` the host's own training.
    """

    operator: str
    stages: int
    start: str

    def __str__(self) -> str:
        return f"{self.operator} {self.stages} {self.start}"

    def backbone(self) -> Delta:
        """Return the config of the backbone."""
        letters = "A" * self.stages + "S" * (4 - self.stages)
        attention = dict(attention=OPERATORS[self.operator]) if self.stages else {}
        return BACKBONES["FLatten-Swin"].backbone | dict(attn_type=letters, **attention)

    def candidate(self) -> Candidate:
        """Return the changes of this arm to the config of the task."""
        delta: Delta = {
            "param_scheduler": None,
            "custom_hooks": [
                dict(type="mmlisa.FiniteLossHook"),
                dict(type="mmlisa.CpuBudgetHook", seconds=0 if self.start == "carried" else SECONDS),
            ],
        }
        if self.start != "scratch":
            delta |= {"model.type": "mmlisa.HostedMaskRCNN", "model.host": checkpoint()}
        if self.start == "distilled":
            delta |= {"model.teacher": HOST.backbone()}
        return Candidate(self.backbone(), BACKBONES["FLatten-Swin"].channels, delta)


HOST = Arm(WINDOWS, 0, "plateau")
REPLACED = [name for name in OPERATORS if name not in (WINDOWS, NOTHING)]
_NETWORKS = (  # operator and number of stages
    (WINDOWS, 0),
    *((name, 4) for name in REPLACED),
    *((name, stages) for name in _PARTIAL for stages in (2, 1)),
)
CARRIED = tuple(Arm(*network, "carried") for network in (*_NETWORKS, (NOTHING, 4)))
ARMS = (
    *(Arm(*network, "host") for network in _NETWORKS),
    *(Arm(name, 4, start) for name in REPLACED for start in ("scratch", "distilled")),
)


def checkpoint() -> str:
    """Return the file of the host's weights."""
    return f"{ROOT}/host/{slug(str(HOST))}_0/iter_{HOST_ITERATIONS}.pth"


def list_runs() -> dict[str, list[Job]]:
    """Return the training of the host, the tests before any training, and for each seed the trainings of all arms."""
    save = dict(type="CheckpointHook", by_epoch=False, interval=HOST_ITERATIONS, save_optimizer=False)
    host = Candidate(HOST.backbone(), BACKBONES["FLatten-Swin"].channels, {"default_hooks.checkpoint": save})
    carried, arms = ({str(arm): arm.candidate() for arm in group} for group in (CARRIED, ARMS))
    comparisons = {
        "host": Comparison("", "detection", {str(HOST): host}, str(HOST), HOST_ITERATIONS, SIZE, seeds=(0,)),
        "carried": Comparison("", "detection", carried, str(CARRIED[0]), _ENDLESS, SIZE, SEEDS[:1]),
        "arms": Comparison("", "detection", arms, str(ARMS[0]), _ENDLESS, SIZE, SEEDS),
    }
    return {name: [job for job in list_jobs({name: one}) if job.candidate] for name, one in comparisons.items()}


def run(operators: Iterable[str] | None = None, seeds: Iterable[int] | None = None, parallel: int = 1) -> list[str]:
    """Run what is missing: the host, then the arms of these operators and seeds (default: all). Return a line per failure."""
    host, carried, arms = list_runs().values()
    chosen = {str(arm) for arm in CARRIED + ARMS if arm.operator in (operators or OPERATORS)}
    todo = [*carried, *(job for job in arms if job.seed in (seeds or SEEDS))]
    todo = [job for job in todo if job.candidate in chosen]
    return run_all(host, ROOT) or run_all(todo, ROOT, parallel)


# ---- report

METRICS = {"box AP50": "coco/bbox_mAP_50", "box AP": "coco/bbox_mAP"}
_REST = ("iterations", "cpu_seconds", "device", "commit")


def percent(run: Row, metric: str) -> float:
    """Return a metric of :data:`METRICS` in percent."""
    return round(100 * run["metrics"]["1.0"][METRICS[metric]], 1)


def write(out: Path) -> str:
    """Write ``replacement.csv``, a line per run, from the results so far; return a table per metric as Markdown."""
    found = [result for jobs in list_runs().values() for job in jobs if (result := read(job, ROOT))]
    runs = {arm: [run for run in found if run["candidate"] == str(arm)] for arm in (HOST, *CARRIED, *ARMS)}
    with (out / "replacement.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["attention", "stages", "start", "seed", *METRICS, *_REST])
        for arm in runs:
            for run in runs[arm]:
                values = [*(percent(run, metric) for metric in METRICS), *(run[key] for key in _REST)]
                writer.writerow([arm.operator, arm.stages, arm.start, run["seed"], *values])
    return "\n".join(to_markdown(runs, metric) for metric in METRICS)


def to_markdown(runs: Mapping[Arm, Sequence[Row]], metric: str) -> str:
    """Return the means and deviations by network and start, and the differences of the starts and from the windows."""
    samples = {arm: Sample(tuple(percent(run, metric) for run in found)) for arm, found in runs.items()}
    # Runs from scratch scatter more.
    pooled = pooled_deviation([sample for arm, sample in samples.items() if arm.start != "scratch"])
    nothing = Sample(())
    windows = samples.get(Arm(WINDOWS, 0, "host"), nothing)
    lines = [
        f"| {metric}, % | stages | no step | from scratch | from the host | distilled | host - scratch | distilled - host "
        "| host - windows |",
        "|---" * 9 + "|",
    ]
    for network in (*_NETWORKS, (NOTHING, 4)):
        starts = [samples.get(Arm(*network, start), nothing) for start in ("carried", "scratch", "host", "distilled")]
        _, scratch, host, distilled = starts
        gains = [
            difference(one, other, pooled) if one.values and other.values else ""
            for one, other in ((host, scratch), (distilled, host), (host, windows))
        ]
        lines.append(f"| {' | '.join([*map(str, network), *map(str, starts), *gains])} |")
    return "\n".join(lines) + "\n"
