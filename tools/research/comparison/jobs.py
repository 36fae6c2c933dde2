"""Runs what a suite compares: one process per training, nothing done twice, a failure of one no matter of the others.

Under ``<root>/<comparison>/`` a training leaves ``<candidate>_<seed>.json`` and its log, the measurement of all candidates
``measurement.json``. Each file holds the config it was made with; one of another config is made again. Imports nothing heavy:
the processes do, once for all of them.
"""

import json
import multiprocessing
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from .suites import TASKS, Comparison, Delta

WARMUP = 20  # iterations in which the learning rate rises
LEARNING_RATE = 1.5e-3


@dataclass(frozen=True)
class Job:
    """A training of one candidate with one seed, or without a candidate the measurement of all of them."""

    name: str
    comparison: Comparison
    candidate: str | None = None
    seed: int = 0

    @property
    def file(self) -> str:
        """Name of the result."""
        if self.candidate is None:
            return "measurement.json"
        return f"{slug(self.candidate)}_{self.seed}.json"

    def config(self) -> dict[str, Any]:
        """What the result depends on."""
        if self.candidate is not None:
            return delta(self.comparison, self.candidate, self.seed) | {"scales": self.comparison.scales}
        backbones = {name: candidate.backbone for name, candidate in self.comparison.candidates.items()}
        return dict(backbones=backbones, sizes=image_sizes(self.comparison))

    def __str__(self) -> str:
        return f"{self.name}, " + ("measurement" if self.candidate is None else f"{self.candidate}, seed {self.seed}")


def slug(name: str) -> str:
    """A name as a file name: ``'LiSA, local 7x7' -> 'lisa-local-7x7'``."""
    return "-".join("".join(c if c.isalnum() else " " for c in name).lower().split())


def list_jobs(suite: dict[str, Comparison]) -> Iterator[Job]:
    """The measurements, then the trainings: of each comparison all candidates with the first seed, then with the second, …"""
    for name, comparison in suite.items():
        yield Job(name, comparison)
    for name, comparison in suite.items():
        for seed in comparison.seeds:
            for candidate in comparison.candidates:
                yield Job(name, comparison, candidate, seed)


# ---- configs


def image_sizes(comparison: Comparison) -> list[int]:
    """Height and width of the test images by scale."""
    return [round(comparison.size * scale) for scale in comparison.scales]


def delta(comparison: Comparison, candidate: str, seed: int) -> Delta:
    """All that a training changes in its task's config, by dotted key."""
    task, chosen = TASKS[comparison.task], comparison.candidates[candidate]
    channels: Any = list(chosen.channels) if task.channels_key.startswith("model.neck") else chosen.channels[-1]
    size = (comparison.size, comparison.size)
    return {
        **dict.fromkeys((*task.train_size_keys, *task.size_keys), size),
        **task.delta,
        **comparison.shared,
        "model.backbone": dict(chosen.backbone, _delete_=True),
        task.channels_key: channels,
        **dict.fromkeys(task.seed_keys, seed),
        **_schedule(comparison.iterations),
    }


def _schedule(iterations: int) -> Delta:
    """A warm-up and a cosine; no validation, checkpoint or picture under way."""
    warmup = min(WARMUP, iterations // 2)
    return {
        "train_cfg.max_iters": iterations,
        "train_cfg.val_interval": iterations + 1,
        "optim_wrapper.optimizer.lr": LEARNING_RATE,
        "param_scheduler": [
            dict(type="LinearLR", start_factor=0.01, by_epoch=False, begin=0, end=warmup),
            dict(type="CosineAnnealingLR", by_epoch=False, begin=warmup, end=iterations, eta_min=1e-5),
        ],
        "val_cfg": None,
        "val_dataloader": None,
        "val_evaluator": None,
        "default_hooks.checkpoint": None,
        "custom_hooks": [dict(type="mmlisa.FiniteLossHook"), dict(type="mmlisa.IterationSeedHook")],
    }


# ---- results


def read(job: Job, root: Path) -> dict[str, Any] | None:
    """The result of a job, None where there is none of its config."""
    path = root / job.name / job.file
    if not path.is_file():
        return None
    result = json.loads(path.read_text())
    return result if result["config"] == json.loads(json.dumps(job.config())) else None


def describe_environment() -> dict[str, str]:
    """Which code runs, and with what command."""
    describe = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=7"]
    try:
        commit = subprocess.run(describe, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        commit = "no clone"
    return dict(commit=commit, command=" ".join([Path(sys.argv[0]).name, *sys.argv[1:]]))


# ---- processes


def run_all(todo: Sequence[Job], root: Path, parallel: int = 1) -> list[str]:
    """Runs the jobs whose results are missing.

    Args:
        todo: measurements run first and one at a time, so that no training disturbs them.
        root: where the results go.
        parallel: trainings at once.

    Returns:
        A line about each job that failed, and about data that cannot be had.
    """
    from tqdm import tqdm

    todo = [job for job in todo if read(job, root) is None]
    if not todo:
        return []
    environment = describe_environment()  # once: the code may be edited while the trainings go on
    # Processes are forked from one that has imported everything: imports take longer than a small training.
    # It must only ask whether there is a GPU, not open it: a GPU that is open cannot be used after a fork.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    forks = "forkserver" in multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if forks else "spawn")
    context.set_forkserver_preload(["research.comparison.libraries"])
    failures = []
    for make, folder in dict.fromkeys(TASKS[job.comparison.task].data for job in todo if job.candidate is not None):
        if failure := _run(context, partial(_prepare, make, folder), root / f"{make}.log"):
            failures.append(failure)
            todo = [job for job in todo if job.candidate is None or TASKS[job.comparison.task].data != (make, folder)]
    with tqdm(total=len(todo), desc="comparison", unit="run", smoothing=0.1) as bar:

        def finish(job: Job) -> None:
            target = root / job.name / job.file
            if failure := _run(context, partial(_work, job, target, environment), target.with_suffix(".log")):
                failures.append(f"{job}: {failure}")
                bar.write(f"failed: {failures[-1]}")
            bar.update()

        for job in todo:
            if job.candidate is None:
                finish(job)
        with ThreadPoolExecutor(parallel) as pool:
            futures = [pool.submit(finish, job) for job in todo if job.candidate is not None]
            try:
                for future in as_completed(futures):
                    future.result()
            except KeyboardInterrupt:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    return failures


def _run(context: Any, function: Callable[[], None], log: Path) -> str | None:
    """Calls a function in a process of its own, its output going to ``log``; where it fails, the last line of that."""
    log.parent.mkdir(parents=True, exist_ok=True)
    process = context.Process(target=_logged, args=(function, log))
    process.start()
    process.join()
    if process.exitcode == 0:
        return None
    lines = log.read_text().strip().splitlines() if log.is_file() else []
    return f"{lines[-1] if lines else f'exit code {process.exitcode}'} ({log})"


def _logged(function: Callable[[], None], log: Path) -> None:
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        function()
    except BaseException:
        traceback.print_exc()
        sys.exit(1)


def _prepare(make: str, folder: str) -> None:
    from . import data

    getattr(data, make)(folder)


def _work(job: Job, target: Path, environment: dict[str, str]) -> None:
    """Writes the result of a job when it is whole."""
    from . import runs

    result = runs.measure(job) if job.candidate is None else runs.train(job, target.with_suffix(""))
    unfinished = target.with_suffix(".tmp")
    unfinished.write_text(json.dumps(dict(result, config=job.config(), **environment), indent=1) + "\n")
    unfinished.rename(target)
