"""Random states derived from the seed and the position in the training, so that a resumed training repeats the original one.

:class:`IterationSeedHook` in a config's ``custom_hooks`` switches this on. For the samples, :func:`seed_samples` then puts two
classes of this module into the config: a sampler whose indices carry their positions, and a data set that seeds by them.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import DefaultSampler as _DefaultSampler
from mmengine.dataset import InfiniteSampler as _InfiniteSampler
from mmengine.dist import get_dist_info, get_rank
from mmengine.hooks import Hook
from mmengine.logging import print_log
from mmengine.registry import DATASETS as ROOT_DATASETS
from mmengine.runner import Runner
from torch.utils.data import Dataset

from mmlisa.registry import DATA_SAMPLERS, DATASETS, HOOKS

from .config_checks import type_name

_LOADING, _FORWARD = 0, 1  # the last word of the entropy keeps the two series of states apart


@HOOKS.register_module()
class IterationSeedHook(Hook):
    """Seeds every sample and every iteration.

    A sample is loaded in the state of (seed, epoch, its position in the epoch over all processes), whichever process loads it.
    The number of loader workers and of training processes therefore changes nothing. A forward pass starts in the state of
    (seed, rank, iteration). Checkpoints need not contain random states.

    This is exact for MMEngine's samplers, which repeat their order, and for transforms that do not remember earlier samples;
    mmdet's ``CachedMosaic`` does.
    """

    priority = "VERY_LOW"

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        torch.manual_seed(_seed_cpu([runner.seed, get_rank(), runner.iter, _FORWARD]))


def seed_samples(cfg: Config) -> None:
    """Make the training data of a config with :class:`IterationSeedHook` load each sample in its own random state."""
    hooks = [type_name(hook) for hook in cfg.get("custom_hooks") or () if isinstance(hook, Mapping)]
    loader = cfg.get("train_dataloader")
    if loader is None or "IterationSeedHook" not in hooks:
        return
    sampler = loader.get("sampler") or {}
    kind = type_name(sampler)
    if str(sampler.get("type")).startswith("mmlisa."):  # a dumped config of an earlier training
        return
    if kind not in ("DefaultSampler", "InfiniteSampler"):
        print_log(
            f"IterationSeedHook does not know the sampler '{kind}': the loading of samples is not seeded", level=30
        )
        return
    loader.sampler.type = f"mmlisa.{kind}"
    loader.dataset = dict(type="mmlisa.SeededDataset", dataset=loader.dataset)


class Index(int):
    """An index into a data set, with the seed, the epoch and the position in the epoch over all processes."""

    place: tuple[int, int, int]


def _with_places(indices: Iterable[int], seed: int, epoch: int, first: int) -> Iterator[Index]:
    rank, processes = get_dist_info()
    for number, value in enumerate(indices, start=first):
        index = Index(value)
        index.place = (seed, epoch, number * processes + rank)
        yield index


@DATA_SAMPLERS.register_module()
class DefaultSampler(_DefaultSampler):
    """MMEngine's sampler of one epoch; its indices carry their positions."""

    def __iter__(self) -> Iterator[Index]:
        return _with_places(super().__iter__(), self.seed, self.epoch, 0)


@DATA_SAMPLERS.register_module()
class InfiniteSampler(_InfiniteSampler):
    """MMEngine's endless sampler; its indices carry their positions."""

    first = 0

    def __iter__(self) -> Iterator[Index]:
        return _with_places(super().__iter__(), self.seed, 0, self.first)

    def skip(self, num_samples: int) -> None:
        """Start after the samples that were trained on before the training was resumed."""
        super().skip(num_samples)
        self.first = num_samples


@DATASETS.register_module()
class SeededDataset(Dataset):
    """A data set whose samples are loaded in the random states of their positions.

    Attributes are those of the wrapped data set, because hooks read and set them (``pipeline``, for example).
    """

    def __init__(self, dataset: Dataset | dict[str, Any]) -> None:
        vars(self)["dataset"] = ROOT_DATASETS.build(dataset) if isinstance(dataset, dict) else dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        if isinstance(index, Index):
            _seed_cpu([*index.place, _LOADING])
        return self.dataset[int(index)]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "dataset":
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.dataset, name, value)


def _seed_cpu(entropy: Sequence[int]) -> int:
    """Seed Python, NumPy and PyTorch's CPU generator; return the seed of PyTorch."""
    python, numpy, pytorch = (int(word) for word in np.random.SeedSequence(list(entropy)).generate_state(3))
    random.seed(python)
    np.random.seed(numpy)
    torch.random.default_generator.manual_seed(pytorch)
    return pytorch
