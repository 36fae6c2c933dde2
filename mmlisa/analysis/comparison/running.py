"""Trains and measures what a suite compares: one process per run, results as JSON, nothing done twice.

Under ``<root>/<comparison>/`` a run leaves ``<candidate>_<seed>.json`` and the log beside it, the measurement of all candidates
``measurement.json``. Each file holds the config it was made with; one of another config is made again.
"""

import json
import multiprocessing
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from mmengine.config import Config
from mmengine.runner import Runner
from tqdm import tqdm

from mmlisa.analysis.benchmark import build_backbone, peak_extra_bytes, time_in_turns
from mmlisa.analysis.complexity import count
from mmlisa.engine import launch

from . import data
from .suites import TASKS, Comparison, Delta

WARMUP = 20  # iterations in which the learning rate rises
LEARNING_RATE = 1.5e-3
MEASURED_BATCH, ROUNDS = 8, 5


@dataclass(frozen=True)
class Job:
    """A training with one seed, or without a candidate the measurement of all of them."""

    name: str
    comparison: Comparison
    device: str
    candidate: str | None = None
    seed: int = 0

    @property
    def file(self) -> str:
        """Name of the result."""
        if self.candidate is None:
            return "measurement.json"
        return f"{slug(self.candidate)}_{self.seed}.json"

    def config(self) -> Any:
        """What the result depends on."""
        if self.candidate is not None:
            return run_delta(self.comparison, self.candidate, self.seed)
        backbones = {name: candidate.backbone for name, candidate in self.comparison.candidates.items()}
        return dict(backbones=backbones, sizes=test_sizes(self.comparison), device=self.device)


def slug(name: str) -> str:
    """A name as a file name: ``'LiSA, local 7x7' -> 'lisa-local-7x7'``."""
    return "-".join("".join(c if c.isalnum() else " " for c in name).lower().split())


def jobs(suite: dict[str, Comparison], device: str) -> Iterator[Job]:
    """The measurements, then the runs: of each comparison all candidates with the first seed, then with the second, …"""
    for name, comparison in suite.items():
        yield Job(name, comparison, device)
    for name, comparison in suite.items():
        for seed in comparison.seeds:
            for candidate in comparison.candidates:
                yield Job(name, comparison, device, candidate, seed)


# ---- configs


def test_sizes(comparison: Comparison) -> list[int]:
    """Height and width of the test images by scale, in whole patches of 8 pixels."""
    return [round(comparison.size * scale / 8) * 8 for scale in comparison.scales]


def run_delta(comparison: Comparison, candidate: str, seed: int) -> Delta:
    """All that a run changes in its task's config, by dotted key."""
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


def run_config(comparison: Comparison, candidate: str, seed: int, work_dir: str | Path) -> Config:
    """The whole config of a run."""
    delta = run_delta(comparison, candidate, seed)
    cfg = launch.load_config(TASKS[comparison.task].config, work_dir=str(work_dir))
    cfg.merge_from_dict(deepcopy(delta))  # merging takes the delta apart
    launch.set_show_dir(cfg, None)
    return cfg


# ---- in the process of a job


def train(job: Job, work_dir: Path) -> dict[str, Any]:
    """Trains, and tests at every scale."""
    cfg = run_config(job.comparison, job.candidate, job.seed, work_dir)
    task = TASKS[job.comparison.task]
    runner = launch.build_runner(cfg, 0.5, verbose=False)
    start = perf_counter()
    launch.train(runner)
    seconds = perf_counter() - start
    metrics = {}
    for scale, size in zip(job.comparison.scales, test_sizes(job.comparison), strict=True):
        if scale != 1:
            cfg.merge_from_dict(dict.fromkeys(task.size_keys, (size, size)))
        metrics[scale] = evaluate(runner, cfg)
    return dict(
        candidate=job.candidate,
        seed=job.seed,
        accuracy={scale: 100 / task.whole * found[task.metric] for scale, found in metrics.items()},
        metrics=metrics,
        iterations=job.comparison.iterations,
        training_seconds=seconds,
    )


@torch.no_grad()
def evaluate(runner: Runner, cfg: Config) -> dict[str, float]:
    """The metrics of the runner's model on the test data of ``cfg``."""
    loader = Runner.build_dataloader(cfg.test_dataloader)
    evaluator = runner.build_evaluator(cfg.test_evaluator)
    evaluator.dataset_meta = getattr(loader.dataset, "metainfo", None)
    model = runner.model.eval()
    for batch in loader:
        evaluator.process(data_samples=model.test_step(batch), data_batch=batch)
    return {name: float(value) for name, value in evaluator.evaluate(len(loader.dataset)).items()}


def measure(job: Job) -> dict[str, Any]:
    """Parameters, MACs, time and memory of the backbones, timed in turns on images of every test size."""
    backbones = {
        name: build_backbone(candidate.backbone).to(job.device) for name, candidate in job.comparison.candidates.items()
    }
    rows = []
    for scale, size in zip(job.comparison.scales, test_sizes(job.comparison), strict=True):
        images = torch.randn(MEASURED_BATCH, 3, size, size, device=job.device)
        infer = {name: lambda model=model: _infer(model, images) for name, model in backbones.items()}
        times = time_in_turns(infer, ROUNDS, job.device)
        for name, model in backbones.items():
            counted = count(model, images[:1])
            rows.append(
                dict(
                    candidate=name,
                    scale=scale,
                    size=size,
                    seconds_per_image={k: times[name][k] / MEASURED_BATCH for k in ("seconds", "low", "high")},
                    params=counted.params(),
                    macs=counted.macs(),
                    peak_bytes=peak_extra_bytes(infer[name], job.device),
                    training_peak_bytes=peak_extra_bytes(lambda model=model: _step(model, images), job.device)
                    if scale == 1
                    else None,
                )
            )
            model.eval()
    return dict(rows=rows, batch=MEASURED_BATCH, rounds=ROUNDS)


@torch.inference_mode()
def _infer(model: torch.nn.Module, images: torch.Tensor) -> Any:
    return model(images)


def _step(model: torch.nn.Module, images: torch.Tensor) -> None:
    """A forward and a backward pass."""
    model.train()
    sum(feature.float().mean() for feature in model(images)).backward()
    model.zero_grad()


def _work(job: Job, folder: Path) -> None:
    """The process of a job: all output into its log, the result beside it when it is whole."""
    target = folder / job.file
    with target.with_suffix(".log").open("w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    try:
        result = train(job, target.with_suffix("")) if job.candidate else measure(job)
    except BaseException:
        traceback.print_exc()
        sys.exit(1)
    result = dict(result, config=job.config(), **environment())
    unfinished = target.with_suffix(".tmp")
    unfinished.write_text(json.dumps(result, indent=1) + "\n")
    unfinished.rename(target)


def environment() -> dict[str, str]:
    """Which code ran where."""
    describe = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=7"]
    try:
        commit = subprocess.run(describe, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        commit = "no clone"
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU, one thread"
    return dict(commit=commit, torch=torch.__version__, device=device)


# ---- all jobs


def is_done(job: Job, root: Path) -> bool:
    """Whether the result is there, made with the job's config."""
    result = read(job, root)
    return result is not None and result["config"] == json.loads(json.dumps(job.config()))


def read(job: Job, root: Path) -> dict[str, Any] | None:
    """The result of a job, None where there is none."""
    path = root / job.name / job.file
    return json.loads(path.read_text()) if path.is_file() else None


def run_all(todo: Sequence[Job], root: Path, parallel: int = 1) -> list[str]:
    """Runs the jobs whose results are missing; a failed one does not stop the others.

    Args:
        todo: measurements run first and one at a time, so that nothing disturbs them.
        root: where the results go.
        parallel: trainings at once.

    Returns:
        A line about each job that failed.
    """
    todo = [job for job in todo if not is_done(job, root)]
    for make, folder in sorted({TASKS[job.comparison.task].data for job in todo if job.candidate is not None}):
        getattr(data, make)(folder)
    # A process is forked for each run from one that has imported everything: imports take longer than a small training.
    context = multiprocessing.get_context(
        "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    )
    if context.get_start_method() == "forkserver":
        context.set_forkserver_preload([__name__, "mmlisa.analysis.comparison.libraries"])
    failures = []
    with tqdm(total=len(todo), desc="comparison", unit="run", smoothing=0.1) as bar:

        def finish(job: Job) -> None:
            if (log := _start(context, job, root)) is not None:
                failures.append(f"{job.name}, {job.candidate or 'measurement'}, seed {job.seed}: {log}")
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


def _start(context: Any, job: Job, root: Path) -> str | None:
    """Runs a job in a process of its own; where it fails, the end of its log."""
    folder = root / job.name
    folder.mkdir(parents=True, exist_ok=True)
    process = context.Process(target=_work, args=(job, folder))
    process.start()
    process.join()
    if process.exitcode == 0:
        return None
    log = folder / Path(job.file).with_suffix(".log")
    last = log.read_text().strip().splitlines()[-1:] if log.is_file() else []
    return f"{''.join(last) or f'exit code {process.exitcode}'} ({log})"
