"""A training that is killed anywhere and resumed ends with the weights of the one that was not, whoever loads its data."""

import itertools
import os
import pickle
import random
import signal
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from mmengine.config import Config

from helpers.toy_runner import losses, runner
from mmlisa.checkpoints import latest_checkpoint, read_checkpoint, writing_whole
from mmlisa.training import seeding
from mmlisa.training.runner import train
from mmlisa.training.saving import AtomicBackend
from mmlisa.training.seeding import DATA_SAMPLERS, IterationSeedHook

WORKERS = dict(num_workers=2, persistent_workers=True)
SAVED = {4: 2, 7: 6, "save": 4}  # the newest whole checkpoint, by where the training was killed


@pytest.mark.parametrize("epochs", [None, 2])
def test_the_number_of_workers_changes_nothing(tmp_path, epochs):
    found = []
    for number, loader in enumerate((dict(num_workers=0), dict(num_workers=1), dict(num_workers=3), WORKERS)):
        folder = tmp_path / str(number)
        train(runner(folder, iterations=8, epochs=epochs, loader=loader))
        found.append(losses(folder))
    assert len(set(found[0].values())) == 8, "losses that do not vary would prove nothing"
    assert all(each == found[0] for each in found)


def test_iterations_processes_and_samples_draw_different_numbers(monkeypatch):
    """Each draws its own, and the same again."""

    def numbers() -> tuple[float, float, float]:
        return random.random(), np.random.rand(), torch.rand(1).item()

    def forward(rank: int, iteration: int, seed: int = 3) -> tuple[float, float, float]:
        monkeypatch.setattr("mmlisa.training.seeding.get_rank", lambda: rank)
        IterationSeedHook().before_train_iter(SimpleNamespace(seed=seed, iter=iteration), 0)
        return numbers()

    class Numbers:
        def __getitem__(self, index):
            return numbers()

    def loading(epoch: int, place: int, seed: int = 3) -> tuple[float, float, float]:
        index = seeding.Index(7)
        index.place = (seed, epoch, place)
        return seeding.SeededDataset(Numbers())[index]

    cases = [(0, 5), (1, 5), (2, 5), (0, 6), (0, 5, 4)]
    drawn = [draw(*case) for draw in (forward, loading) for case in cases]
    assert all(len(set(each)) == len(drawn) for each in zip(*drawn, strict=True))
    assert [draw(*case) for draw in (forward, loading) for case in cases] == drawn


@pytest.mark.parametrize("kind", ["DefaultSampler", "InfiniteSampler"])
def test_no_two_processes_load_in_the_same_state(monkeypatch, kind):
    def places(rank: int) -> list[tuple[int, int, int]]:
        for module in ("mmlisa.training.seeding", "mmengine.dataset.sampler"):
            monkeypatch.setattr(f"{module}.get_dist_info", lambda: (rank, 2))
        return [
            index.place for index in itertools.islice(DATA_SAMPLERS.build(dict(type=kind, dataset=range(8), seed=5)), 4)
        ]

    assert sorted(places(0) + places(1)) == [(5, 0, i) for i in range(8)]


def test_each_epoch_has_positions_of_its_own():
    sampler = DATA_SAMPLERS.build(dict(type="DefaultSampler", dataset=range(4), seed=5))
    places = []
    for epoch in range(3):
        sampler.set_epoch(epoch)
        places += [index.place for index in sampler]
    assert places == [(5, epoch, i) for epoch in range(3) for i in range(4)]


def test_a_skipped_sampler_continues_with_the_same_positions():
    whole, skipped = (DATA_SAMPLERS.build(dict(type="InfiniteSampler", dataset=range(7), seed=5)) for _ in range(2))
    skipped.skip(9)
    expected = [(int(index), index.place) for index in itertools.islice(whole, 20)][9:]
    assert [(int(index), index.place) for index in itertools.islice(skipped, 11)] == expected


def test_the_wrapper_passes_attributes_on():
    """Hooks of mmdet replace the pipeline of the training's data set."""
    inner = SimpleNamespace(pipeline="old", metainfo={"classes": ("cat",)})
    outer = seeding.SeededDataset(inner)
    outer.pipeline = "new"
    assert (inner.pipeline, outer.pipeline, outer.metainfo) == ("new", "new", {"classes": ("cat",)})
    assert not hasattr(outer, "__getitems__")
    with pytest.raises(AttributeError):
        _ = outer.missing
    assert pickle.loads(pickle.dumps(seeding.SeededDataset([1, 2]))).dataset == [1, 2]


def test_an_unknown_sampler_is_reported(capsys):
    cfg = Config(dict(
        custom_hooks=[dict(type="mmlisa.IterationSeedHook")],
        train_dataloader=dict(sampler=dict(type="ClassAwareSampler"), dataset=dict(type="CocoDataset")),
    ))  # fmt: skip
    seeding.seed_samples(cfg)
    assert cfg.train_dataloader.dataset.type == "CocoDataset"
    assert "'ClassAwareSampler': the loading of samples is not seeded" in capsys.readouterr().out


def killed(**options) -> None:
    """A training in a process of its own, which SIGKILL ends."""
    process = os.fork()
    if not process:
        try:
            train(runner(**options))
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL


def die_half_way(self, obj, filepath) -> None:
    if not filepath.endswith("iter_6.pth"):
        with writing_whole(filepath) as file:
            file.write(obj)
        return
    with writing_whole(filepath) as file:
        file.write(obj[: len(obj) // 2])
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("loader", [dict(num_workers=0), WORKERS], ids=["in-process", "workers"])
@pytest.mark.parametrize("epochs", [None, 2], ids=["iterations", "epochs"])
@pytest.mark.parametrize("at", SAVED, ids=["iteration_4", "iteration_7", "save"])
def test_killed_and_resumed(tmp_path, monkeypatch, at, epochs, loader):
    options = dict(iterations=8, epochs=epochs, loader=loader)
    train(runner(tmp_path / "whole", **options))
    folder = tmp_path / "killed"
    with monkeypatch.context() as patch:
        if at == "save":
            patch.setattr(AtomicBackend, "put", die_half_way)
            killed(work_dir=folder, **options)
            assert list(folder.glob(".iter_6.pth.*.partial"))
        else:
            killed(work_dir=folder, model=dict(signal_at=at, number=signal.SIGKILL), **options)
    last = latest_checkpoint(folder)
    assert last == str(folder / f"iter_{SAVED[at]}.pth")
    train(runner(folder, load_from=last, resume=True, **options))
    whole, resumed = (read_checkpoint(path / "iter_8.pth") for path in (tmp_path / "whole", folder))
    assert all(torch.equal(tensor, resumed["state_dict"][name]) for name, tensor in whole["state_dict"].items())
    moments = [checkpoint["optimizer"]["state"][0]["exp_avg"] for checkpoint in (whole, resumed)]
    assert torch.equal(*moments)
    assert not list(folder.glob(".*.partial"))
