"""Trainings and measurements of a comparison, and their report.

Under ``work_dirs/compare/<comparison>/``, a training writes ``<candidate>_<seed>.json`` and the measurement of all candidates
writes ``measurement.json``. A run whose file exists is skipped.
"""

import csv
import json
import logging
import multiprocessing
from collections.abc import Iterable, Sequence
from copy import deepcopy
from functools import partial
from math import nan, sqrt
from pathlib import Path
from statistics import mean, stdev, variance
from typing import Any

import numpy as np
import torch
from mmengine.config import Config
from mmengine.device import get_device
from mmengine.runner import Runner

from mmlisa import config_path
from mmlisa.complexity import count

from .benchmark import build_backbone, describe_commit, peak_extra_bytes, time_in_turns, train_step
from .blocks import block_names, replace_block
from .suites import OBJECTS, ROOT, SCENES, TASKS, Comparison, Delta

Row = dict[str, Any]
MIN_RUNS = 3  # runs of a candidate that a difference needs
LEARNING_RATE = 1.5e-3
_BATCH, _ROUNDS = 8, 5  # images and rounds of the measurements


def slug(name: str) -> str:
    """Return a name as a file name: ``'LiSA, local 7x7' -> 'lisa-local-7x7'``."""
    return "-".join("".join(c if c.isalnum() else " " for c in name).lower().split())


# ---- runs


def delta(comparison: Comparison, candidate: str, seed: int) -> Delta:
    """Return all changes of a training to the config of its task, by dotted key."""
    task, chosen = TASKS[comparison.task], comparison.candidates[candidate]
    channels: Any = list(chosen.channels) if task.channels_key.startswith("model.neck") else chosen.channels[-1]
    warmup = min(20, comparison.iterations // 2)  # iterations
    return {
        **dict.fromkeys(task.size_keys, (comparison.size, comparison.size)),
        **task.delta,
        **comparison.shared,
        "model.backbone": dict(chosen.backbone, _delete_=True),
        task.channels_key: channels,
        "randomness.seed": seed,
        "train_cfg.max_iters": comparison.iterations,
        "train_cfg.val_interval": comparison.iterations + 1,
        "optim_wrapper.optimizer.lr": LEARNING_RATE,
        "param_scheduler": [
            dict(type="LinearLR", start_factor=0.01, by_epoch=False, begin=0, end=warmup),
            dict(type="CosineAnnealingLR", by_epoch=False, begin=warmup, end=comparison.iterations, eta_min=1e-5),
        ],
        # No validation and no checkpoints during training.
        **dict.fromkeys(("val_cfg", "val_dataloader", "val_evaluator", "default_hooks.checkpoint"), None),
        "custom_hooks": [dict(type="mmlisa.FiniteLossHook")],
        "log_level": "WARNING",
        **{key: value.format(seed=seed) if key == "load_from" else value for key, value in chosen.training.items()},
    }


def build_config(comparison: Comparison, candidate: str, seed: int, work_dir: Path) -> Config:
    """Return the whole config of a training."""
    cfg = Config.fromfile(config_path(TASKS[comparison.task].config))
    cfg.merge_from_dict(deepcopy(delta(comparison, candidate, seed)))  # merging changes it
    cfg.default_hooks.pop("visualization", None)  # no pictures
    cfg.work_dir = str(work_dir)
    cfg.experiment_name = work_dir.name  # MMEngine keeps one logger per name
    return cfg


def train(comparison: Comparison, candidate: str, seed: int, work_dir: Path) -> Row:
    """Train and test; the accuracy is in percent."""
    task = TASKS[comparison.task]
    runner = Runner.from_cfg(build_config(comparison, candidate, seed, work_dir))
    runner.train()
    metrics = {name: float(value) for name, value in runner.test().items()}
    accuracy = 100 / task.whole * metrics[task.metric]
    return dict(candidate=candidate, seed=seed, accuracy=accuracy, metrics=metrics, iterations=runner.iter)


def measure(comparison: Comparison) -> Row:
    """Measure parameters, MACs, time and memory of the backbones, timed in turns."""
    device = get_device()
    images = torch.randn(_BATCH, 3, comparison.size, comparison.size, device=device)
    configs = {name: candidate.backbone for name, candidate in comparison.candidates.items()}
    run = torch.inference_mode()(lambda model: model(images))
    infer = {name: partial(run, build_backbone(cfg).to(device)) for name, cfg in configs.items()}
    times = time_in_turns(infer, _ROUNDS, device)
    rows = []
    for name, cfg in configs.items():
        model = build_backbone(cfg, training=True).to(device)
        row = dict(candidate=name, seconds_per_image=times[name]["seconds"] / _BATCH)
        row["peak_bytes"] = peak_extra_bytes(infer[name], device)
        row["training_peak_bytes"] = peak_extra_bytes(partial(train_step, model, images), device)
        rows.append(row | count(model, images[:1])._asdict())
    return dict(rows=rows)


def prepare_data(task: str) -> None:
    """Make the demo data of a task, unless their folder exists."""
    from mmlisa.datasets.demo import make_demo, make_imagenet_layout

    if task != "classification":
        make_demo(SCENES, num_images={"train": 2000, "val": 160})
    elif not Path(OBJECTS).exists():
        make_imagenet_layout(OBJECTS, {"train": 250, "val": 64})


def run(name: str, comparison: Comparison, candidate: str | None, seed: int) -> str | None:
    """Run a training, or without a candidate the measurement, unless its result exists; return a line about its failure."""
    file = Path(ROOT) / name / ("measurement.json" if candidate is None else f"{slug(candidate)}_{seed}.json")
    if file.is_file():
        return None
    torch.set_num_threads(1)  # results do not depend on how many trainings run at once
    torch.manual_seed(0)
    try:
        result = measure(comparison) if candidate is None else train(comparison, candidate, seed, file.with_suffix(""))
    except Exception as error:  # one failed run does not end the others
        logging.getLogger(__name__).exception("%s", file)
        return f"{file}: {error!r}"
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU, one thread"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(dict(result, device=device, commit=describe_commit()), indent=1) + "\n")
    return None


def run_all(suite: dict[str, Comparison], parallel: int = 1) -> list[str]:
    """Run the comparisons of a suite one after another, ``parallel`` trainings at once; return a line per failed run."""
    failures = []
    with multiprocessing.get_context("spawn").Pool(parallel) as pool:
        for name, comparison in suite.items():
            prepare_data(comparison.task)
            trainings = [(name, comparison, one, seed) for seed in comparison.seeds for one in comparison.candidates]
            failures += pool.starmap(run, [(name, comparison, None, 0)])  # alone, because it measures times
            failures += pool.starmap(run, trainings, chunksize=1)
    return [failure for failure in failures if failure]


# ---- report


def pooled_deviation(samples: Iterable[Sequence[float]]) -> float:
    """Return the standard deviation within candidates: the root of the mean of the variances, weighted by n - 1."""
    samples = [sample for sample in samples if len(sample) > 1]
    freedom = [len(sample) - 1 for sample in samples]
    return sqrt(np.average([variance(sample) for sample in samples], weights=freedom)) if samples else nan


def difference(sample: Sequence[float], other: Sequence[float], pooled: float) -> str:
    """Return the difference of the means as text: ``'none'`` below two standard deviations, ``'?'`` for too few runs.

    The deviation is the larger one of the two candidates' and the pooled deviation. Two candidates whose few runs agree by chance
    are therefore not reported as different.
    """
    if min(len(sample), len(other)) < MIN_RUNS:
        return "?"
    value = mean(sample) - mean(other)
    return "none" if abs(value) < 2 * max(pooled_deviation([sample, other]), pooled) else f"{value:+.1f}"


def write_report(name: str, comparison: Comparison, out: Path) -> str:
    """Write ``<name>.csv``, a line per run, and the table of the results so far in ``README.md``; return the table."""
    folder = Path(ROOT) / name
    files = [folder / f"{slug(each)}_{seed}.json" for each in comparison.candidates for seed in comparison.seeds]
    runs = [json.loads(file.read_text()) for file in files if file.is_file()]
    columns = ("candidate", "seed", "accuracy", "iterations", "device", "commit")
    out.mkdir(parents=True, exist_ok=True)
    with (out / f"{name}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(runs)
    measured = folder / "measurement.json"
    text = to_markdown(comparison, runs, json.loads(measured.read_text()) if measured.is_file() else dict(rows=[]))
    page = out / "README.md"
    before = page.read_text(encoding="utf-8") if page.is_file() else ""
    if name not in block_names(before):
        before += f"\n<!-- begin {name} -->\n<!-- end {name} -->\n"
    page.write_text(replace_block(before, name, text), encoding="utf-8")
    return text


def to_markdown(comparison: Comparison, runs: Sequence[Row], measured: Row) -> str:
    """Return the table of the means, deviations, differences and costs, the most accurate candidate first."""
    costs = {}
    for row in measured["rows"]:
        millions = [f"{row[key] / 1e6:.1f}" for key in ("macs", "peak_bytes", "training_peak_bytes")]
        speed, parameters = f"{1e3 * row['seconds_per_image']:.2f}", f"{row['parameters'] / 1e6:.3f}"
        costs[row["candidate"]] = [speed, parameters, *millions]
    samples = {name: [one["accuracy"] for one in runs if one["candidate"] == name] for name in comparison.candidates}
    names = sorted(samples, key=lambda name: -mean(samples[name]) if samples[name] else 0)
    pooled = pooled_deviation(samples.values())
    header = (
        *("", f"{TASKS[comparison.task].unit}, %", "runs", "to " + comparison.baseline, "to the best"),
        *("ms per image", "parameters, M", "MACs, M", "peak MB, inference", "peak MB, training"),
    )
    lines = [f"### {comparison.title}", "", f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    for name in names:
        gaps = [
            difference(samples[name], samples[other], pooled) if samples[name] and name != other else ""
            for other in (comparison.baseline, names[0])
        ]
        accuracy = " ± ".join(f"{each(samples[name]):.1f}" for each in (mean, stdev)[: len(samples[name])])
        cells = (name, accuracy, str(len(samples[name])), *gaps, *costs.get(name, [""] * 5))
        lines.append(f"| {' | '.join(cells)} |")
    commits = sorted({one["commit"] for one in (*runs, measured) if "commit" in one})
    lines += [
        "",
        f"{comparison.iterations} iterations at {comparison.size}x{comparison.size}; deviation pooled over all rows: "
        f"{pooled:.1f}. Commits: {', '.join(commits)}.",
    ]
    return "\n".join(lines) + "\n"
