"""A toy model with MMEngine's real runner, a few parameters and a few points; what the logs of a training say."""

import json
import os
import signal
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.evaluator import BaseMetric
from mmengine.model import BaseModel
from mmengine.registry import DATASETS, METRICS, MODELS
from mmengine.runner import Runner
from torch import nn

from mmlisa.training.runner import build_runner


class ToyRegression(BaseModel):
    """Fits a line through noisy points; in a given forward pass, its loss breaks or its process gets a signal."""

    def __init__(self, broken_at: int = -1, signal_at: int = -1, number: int = signal.SIGTERM, **options) -> None:
        super().__init__(**options)
        self.layer, self.calls = nn.Linear(4, 1), 0
        self.broken_at, self.signal_at, self.number = broken_at, signal_at, number

    def forward(self, inputs: torch.Tensor, mode: str = "tensor"):
        if mode == "predict":
            return [{"seen": 1} for _ in inputs]
        loss = (self.layer(torch.stack(inputs)) - 1).square().mean()
        self.calls += 1
        if self.calls == self.broken_at:
            loss = loss * torch.nan
        if self.calls == self.signal_at:
            os.kill(os.getpid(), self.number)
        return {"loss_fit": loss}


class ToyPoints(torch.utils.data.Dataset):
    metainfo: dict = {}  # noqa: RUF012

    def __init__(self, length=7):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return {"inputs": torch.full((4,), float(index)) + torch.randn(4)}


class ToyCount(BaseMetric):
    def process(self, data_batch, data_samples):
        self.results.extend(data_samples)

    def compute_metrics(self, results):
        return {"count": len(results)}


METRICS.register_module(module=ToyCount, force=True)
MODELS.register_module(module=ToyRegression, force=True)
DATASETS.register_module(module=ToyPoints, force=True)


POINTS = dict(
    dataset=dict(type="ToyPoints"), sampler=dict(type="DefaultSampler", shuffle=False), batch_size=2, num_workers=0
)
VALIDATION = dict(val_dataloader=POINTS, val_cfg=dict(), val_evaluator=dict(type="ToyCount"))
TEST = dict(test_dataloader=POINTS, test_cfg=dict(), test_evaluator=dict(type="ToyCount"))


def toy_config(work_dir, iterations=6, model=None, epochs=None, loader=None, hook=None, **options) -> Config:
    cfg = dict(
        model={"type": "ToyRegression", **(model or {})},
        work_dir=str(work_dir),
        train_dataloader={
            "dataset": dict(type="ToyPoints"),
            "sampler": dict(type="InfiniteSampler" if epochs is None else "DefaultSampler", shuffle=True),
            "batch_size": 2,
            "num_workers": 0,
            **(loader or {}),
        },
        train_cfg=dict(by_epoch=False, max_iters=iterations) if epochs is None else dict(max_epochs=epochs),
        optim_wrapper=dict(optimizer=dict(type="Adam", lr=0.1)),
        default_hooks=dict(
            checkpoint=dict(type="CheckpointHook", by_epoch=False, interval=2) | (hook or dict(max_keep_ckpts=2)),
            logger=dict(type="LoggerHook", interval=1),
        ),
        custom_hooks=[dict(type="mmlisa.TrainingCurvesHook")],
        vis_backends=[dict(type="LocalVisBackend")],
        visualizer=dict(type="Visualizer", vis_backends=[dict(type="LocalVisBackend")], name=str(work_dir)),
        log_processor=dict(window_size=1, by_epoch=False),
        randomness=dict(seed=3),
        experiment_name=f"toy_{work_dir.name}_{iterations}_{len(options)}",
        default_scope="mmengine",
    )
    return Config(cfg | options)


def runner(work_dir, verbose=True, **options) -> Runner:
    return build_runner(toy_config(work_dir, **options), verbose=verbose)


def history(work_dir: Path) -> tuple[dict[int, dict], dict]:
    """Losses per iteration and the last validation's metrics, over all logs of a work dir; later logs win."""
    losses, metrics = {}, {}
    for path in sorted(work_dir.glob("*/vis_data/*.json")):
        if path.name in ("config.json", "scalars.json"):
            continue
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            if "loss" in entry:
                losses[entry["step"]] = {k: v for k, v in entry.items() if "loss" in k or k in ("lr", "grad_norm")}
            else:
                metrics = scores(entry)
    return losses, metrics


def scores(entry: dict) -> dict:
    return {k: v for k, v in entry.items() if any(part in k for part in ("mAP", "mIoU", "Acc", "accuracy"))}
