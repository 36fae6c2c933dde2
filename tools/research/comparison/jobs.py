"""The trainings and measurements of a suite, their configs, and the files of their results.

Under ``<root>/<comparison>/`` a training writes ``<candidate>_<seed>.json`` and its log, and the measurement of all candidates
writes ``measurement.json``. Each file holds the config of its run; :func:`read` ignores results of another config.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .suites import TASKS, Comparison, Delta

WARMUP = 20  # iterations of warm-up
LEARNING_RATE = 1.5e-3


@dataclass(frozen=True)
class Job:
    """A training of one candidate with one seed; without a candidate, the measurement of all candidates."""

    name: str
    comparison: Comparison
    candidate: str | None = None
    seed: int = 0

    @property
    def file(self) -> str:
        """Return the name of the result file."""
        if self.candidate is None:
            return "measurement.json"
        return f"{slug(self.candidate)}_{self.seed}.json"

    def config(self) -> dict[str, Any]:
        """Return everything that determines the result."""
        if self.candidate is not None:
            return delta(self.comparison, self.candidate, self.seed) | {"scales": self.comparison.scales}
        backbones = {name: candidate.backbone for name, candidate in self.comparison.candidates.items()}
        return dict(backbones=backbones, sizes=image_sizes(self.comparison))

    def __str__(self) -> str:
        return f"{self.name}, " + ("measurement" if self.candidate is None else f"{self.candidate}, seed {self.seed}")


def slug(name: str) -> str:
    """Return a name as a file name: ``'LiSA, local 7x7' -> 'lisa-local-7x7'``."""
    return "-".join("".join(c if c.isalnum() else " " for c in name).lower().split())


def list_jobs(suite: dict[str, Comparison]) -> Iterator[Job]:
    """List the measurements, then for each seed the trainings of all candidates of each comparison."""
    for name, comparison in suite.items():
        yield Job(name, comparison)
    for name, comparison in suite.items():
        for seed in comparison.seeds:
            for candidate in comparison.candidates:
                yield Job(name, comparison, candidate, seed)


# ---- configs


def image_sizes(comparison: Comparison) -> list[int]:
    """Return height and width of the test images by scale."""
    return [round(comparison.size * scale) for scale in comparison.scales]


def delta(comparison: Comparison, candidate: str, seed: int) -> Delta:
    """Return all changes of a training to the config of its task, by dotted key."""
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
        **chosen.training,
    }


def _schedule(iterations: int) -> Delta:
    """Return a schedule of warm-up and cosine, without validation, checkpoints and pictures during training."""
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
        "custom_hooks": [dict(type="mmlisa.FiniteLossHook")],
    }


# ---- results


def read(job: Job, root: Path) -> dict[str, Any] | None:
    """Read the result of a job; None if there is no result of its config."""
    path = root / job.name / job.file
    if not path.is_file():
        return None
    result = json.loads(path.read_text())
    return result if result["config"] == json.loads(json.dumps(job.config())) else None
