"""Work of a job: a training with its tests, or the measurement of the backbones of a comparison."""

from copy import deepcopy
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import torch
from mmengine.config import Config
from mmengine.device import get_device
from mmengine.runner import Runner
from torch import Tensor, nn

from mmlisa.complexity import count
from mmlisa.memory import peak_extra_bytes
from mmlisa.training.config import load_config, set_show_dir
from mmlisa.training.runner import build_runner
from mmlisa.training.runner import train as train_runner
from research import hosted_detector, solar_cells, tree_crowns  # noqa: F401 (they register their classes)
from research.benchmark import build_backbone, time_in_turns

from .jobs import Job, delta, image_sizes
from .suites import TASKS

BATCH, ROUNDS = 8, 5  # of the measurements


def build_config(job: Job, work_dir: str | Path) -> Config:
    """Return the whole config of a training."""
    cfg = load_config(TASKS[job.comparison.task].config, work_dir=str(work_dir))
    cfg.merge_from_dict(deepcopy(delta(job.comparison, job.candidate, job.seed)))  # merging changes it
    set_show_dir(cfg, None)
    return cfg


def train(job: Job, work_dir: Path) -> dict[str, Any]:
    """Train, and test at every scale; accuracies are in percent."""
    _prepare_process()
    cfg = build_config(job, work_dir)
    task = TASKS[job.comparison.task]
    runner = build_runner(cfg, 0.5, verbose=False)
    start, cpu_start = perf_counter(), process_time()
    train_runner(runner)
    seconds, cpu_seconds = perf_counter() - start, process_time() - cpu_start
    metrics = {}
    for scale, size in zip(job.comparison.scales, image_sizes(job.comparison), strict=True):
        cfg.merge_from_dict(dict.fromkeys(task.size_keys, (size, size)))
        metrics[scale] = evaluate(runner, cfg)
    return dict(
        candidate=job.candidate,
        seed=job.seed,
        accuracy={scale: 100 / task.whole * found[task.metric] for scale, found in metrics.items()},
        metrics=metrics,
        iterations=runner.iter,
        training_seconds=round(seconds, 1),
        cpu_seconds=round(cpu_seconds, 1),
        device=device_name(),
    )


@torch.no_grad()
def evaluate(runner: Runner, cfg: Config) -> dict[str, float]:
    """Return the metrics of the runner's model on the test data of ``cfg``."""
    loader = Runner.build_dataloader(cfg.test_dataloader)
    evaluator = runner.build_evaluator(cfg.test_evaluator)
    evaluator.dataset_meta = loader.dataset.metainfo
    model = runner.model.eval()
    for batch in loader:
        evaluator.process(data_samples=model.test_step(batch), data_batch=batch)
    return {name: float(value) for name, value in evaluator.evaluate(len(loader.dataset)).items()}


def measure(job: Job) -> dict[str, Any]:
    """Measure parameters, MACs, time and memory of the backbones, timed in turns on images of every test size."""
    _prepare_process()
    device = get_device()
    candidates = job.comparison.candidates.items()
    backbones = {name: build_backbone(candidate.backbone).to(device) for name, candidate in candidates}
    rows = []
    for scale, size in zip(job.comparison.scales, image_sizes(job.comparison), strict=True):
        images = torch.randn(BATCH, 3, size, size, device=device)
        infer = {name: partial(_infer, model, images) for name, model in backbones.items()}
        times = time_in_turns(infer, ROUNDS, device)
        for name, model in backbones.items():
            counted = count(model, images[:1])
            rows.append(
                dict(
                    candidate=name,
                    scale=scale,
                    size=size,
                    seconds_per_image={key: times[name][key] / BATCH for key in ("seconds", "low", "high")},
                    params=counted.parameters,
                    macs=counted.macs(),
                    peak_bytes=peak_extra_bytes(infer[name], device),
                )
            )
            if scale == 1:
                trained = build_backbone(job.comparison.candidates[name].backbone, training=True).to(device)
                rows[-1]["training_peak_bytes"] = peak_extra_bytes(partial(_step, trained, images), device)
    return dict(rows=rows, batch=BATCH, rounds=ROUNDS, device=device_name())


@torch.inference_mode()
def _infer(model: nn.Module, images: Tensor) -> Any:
    return model(images)


def _step(model: nn.Module, images: Tensor) -> None:
    """Run a forward and a backward pass."""
    sum(feature.mean() for feature in model(images)).backward()
    model.zero_grad()


def _prepare_process() -> None:
    # One thread, so that results do not depend on how many trainings run at once.
    torch.set_num_threads(1)
    torch.manual_seed(0)


def device_name() -> str:
    """Return the device of the models."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU, one thread"
