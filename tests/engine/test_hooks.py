"""Hooks on a toy model: a few parameters, real runner."""

import json
import math

import pytest
import torch
from mmengine.config import Config
from mmengine.model import BaseModel
from mmengine.registry import DATASETS, MODELS
from mmengine.runner import Runner
from torch import nn

from mmlisa.engine.launch import build_runner


class ToyRegression(BaseModel):
    """Fits a line through noisy points, with dropout, so that every random state matters."""

    def __init__(self, broken_at: int = -1) -> None:
        super().__init__()
        self.layer, self.dropout, self.broken_at, self.calls = nn.Linear(4, 1), nn.Dropout(), broken_at, 0

    def forward(self, inputs: torch.Tensor, mode: str = "tensor"):
        loss = (self.layer(self.dropout(torch.stack(inputs))) - 1).square().mean()
        self.calls += 1
        if self.calls == self.broken_at:
            loss = loss * math.nan
        return {"loss_fit": loss, "loss_zero": 0 * loss.detach()}


class ToyPoints(torch.utils.data.Dataset):
    metainfo: dict = {}  # noqa: RUF012

    def __len__(self):
        return 7

    def __getitem__(self, index):
        return {"inputs": torch.full((4,), float(index)) + torch.randn(4)}


MODELS.register_module(module=ToyRegression, force=True)
DATASETS.register_module(module=ToyPoints, force=True)


def runner(work_dir, iterations=6, model=None, **options) -> Runner:
    cfg = dict(
        model=dict(type="ToyRegression", **(model or {})),
        work_dir=str(work_dir),
        train_dataloader=dict(
            dataset=dict(type="ToyPoints"),
            sampler=dict(type="InfiniteSampler", shuffle=True),
            batch_size=2,
            num_workers=0,
        ),
        train_cfg=dict(by_epoch=False, max_iters=iterations),
        optim_wrapper=dict(optimizer=dict(type="Adam", lr=0.1)),
        default_hooks=dict(
            checkpoint=dict(type="CheckpointHook", by_epoch=False, interval=2, max_keep_ckpts=2),
            logger=dict(type="LoggerHook", interval=1),
        ),
        custom_hooks=[
            dict(type=f"mmlisa.{name}") for name in ("FiniteLossHook", "IterationSeedHook", "TrainingCurvesHook")
        ],
        vis_backends=[dict(type="LocalVisBackend")],
        visualizer=dict(
            type="Visualizer", vis_backends=[dict(type="LocalVisBackend")], name=f"v{work_dir.name}{len(options)}"
        ),
        log_processor=dict(window_size=1, by_epoch=False),
        randomness=dict(seed=3),
        experiment_name=f"toy_{work_dir.name}_{iterations}_{len(options)}",
        default_scope="mmengine",
        **options,
    )
    return build_runner(Config(cfg), 0.5)


def losses(work_dir) -> dict[int, float]:
    found = {}
    for path in sorted(work_dir.glob("*/vis_data/2*.json")):
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            found[entry["step"]] = entry["loss"]
    return found


def test_resumed_run_repeats_the_whole_one(tmp_path):
    runner(tmp_path / "whole").train()
    whole = losses(tmp_path / "whole")
    assert sorted(whole) == [1, 2, 3, 4, 5, 6]
    assert len(set(whole.values())) == 6, "losses that do not vary would prove nothing"
    # Stopped between two checkpoints, as a crash does.
    runner(tmp_path / "part", iterations=5).train()
    runner(tmp_path / "rest", load_from=str(tmp_path / "part" / "iter_4.pth"), resume=True).train()
    assert losses(tmp_path / "rest") == {step: whole[step] for step in (5, 6)}


def test_non_finite_loss_stops_and_keeps_the_last_good_checkpoint(tmp_path):
    with pytest.raises(FloatingPointError, match=r"(?s)iteration 4: .*loss_fit is nan.*iter_2\.pth"):
        runner(tmp_path / "nan", model=dict(broken_at=4)).train()
    assert [p.name for p in (tmp_path / "nan").glob("*.pth")] == ["iter_2.pth"]


def test_curves_are_drawn(tmp_path):
    runner(tmp_path / "curves").train()
    (picture,) = (tmp_path / "curves").glob("*/curves.png")
    assert picture.stat().st_size > 10_000


def test_foreign_checkpoint_is_refused(tmp_path):
    path = tmp_path / "foreign.pth"
    torch.save({"state_dict": nn.Linear(3, 3).state_dict()}, path)
    with pytest.raises(ValueError, match="0 of 2 entries match"):
        runner(tmp_path / "foreign", load_from=str(path)).train()
