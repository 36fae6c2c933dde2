"""Random states that a resumed training has again, whatever was in memory when the other one ended."""

import random
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from mmengine.dist import get_dist_info, get_rank
from mmengine.hooks import Hook
from mmengine.runner import Runner
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler

from mmlisa.registry import HOOKS

_LOADING, _FORWARD = 0, 1  # two series of states that never meet


@HOOKS.register_module()
class IterationSeedHook(Hook):
    """Derives every random state from the seed and the place in the training, so that a resumed run repeats the whole one.

    A sample is loaded in the state of (seed, epoch, its place in the epoch over all processes), whichever process loads it: the
    number of loader workers and of training processes changes nothing. A forward pass begins in the state of (seed, rank,
    iteration). Checkpoints then need not carry any.

    Exact for samplers that repeat their order, as MMEngine's do, and for transforms without a memory of earlier samples
    (mmdet's ``CachedMosaic`` has one).
    """

    priority = "VERY_LOW"

    def before_train(self, runner: Runner) -> None:
        seed_samples(runner.train_dataloader, runner.seed)

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        seed_all([runner.seed, get_rank(), runner.iter, _FORWARD])


def seed_all(entropy: Sequence[int]) -> None:
    """Sets the states of Python, NumPy and PyTorch, on all devices, to numbers derived from ``entropy``."""
    torch.manual_seed(_seed_cpu(entropy))


def seed_samples(loader: DataLoader, seed: int) -> None:
    """Makes ``loader`` load each sample in a random state of its own, from its next iterator on.

    The sampler's indices say where they stand in the epoch; the data set, in the worker, seeds itself by that.
    """
    sampler = loader.sampler if loader.batch_size is not None else getattr(loader.batch_sampler, "sampler", None)
    if isinstance(loader.dataset, IterableDataset) or not isinstance(sampler, Sampler):
        return
    sampler.__class__ = _placing(type(sampler))
    # Torch's protocol for data sets that load a batch at once.
    loader.dataset.__getitems__ = partial(_load, loader.dataset, seed)


class _Index(int):
    """An index into a data set that knows its epoch and its place there."""

    place: tuple[int, int]


def _placing(kind: type[Sampler]) -> type[Sampler]:
    """The same sampler, whose indices know their places."""

    class Placing(kind):
        first = 0

        def __iter__(self) -> Iterator[int]:
            rank, processes = get_dist_info()
            for number, value in enumerate(super().__iter__(), start=self.first):
                index = _Index(value)
                index.place = (getattr(self, "epoch", 0), number * processes + rank)
                yield index

    class PlacingAndSkipping(Placing):
        def skip(self, num_samples: int) -> None:  # MMEngine's InfiniteSampler: over what was trained on, when resuming
            super().skip(num_samples)
            self.first = num_samples

    return PlacingAndSkipping if hasattr(kind, "skip") else Placing


def _load(dataset: Dataset, seed: int, indices: Sequence[int]) -> list[Any]:
    samples = []
    for index in indices:
        if isinstance(index, _Index):
            _seed_cpu([seed, *index.place, _LOADING])
        samples.append(dataset[int(index)])
    return samples


def _seed_cpu(entropy: Sequence[int]) -> int:
    """Seeds all but other devices, where nothing is loaded; returns PyTorch's seed."""
    python, numpy, pytorch = (int(word) for word in np.random.SeedSequence(list(entropy)).generate_state(3))
    random.seed(python)
    np.random.seed(numpy)
    torch.random.default_generator.manual_seed(pytorch)
    return pytorch
