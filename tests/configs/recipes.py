"""What a config trains with, reduced to the words in which papers describe it."""

from collections.abc import Iterator
from typing import Any

from mmengine.config import Config


def recipe(cfg: Config) -> dict[str, Any]:
    """The resolved recipe of a config of any OpenMMLab library.

    Keys: ``optimizer``, ``lr``, ``weight_decay``, ``clip``; ``epochs`` or ``iterations``; ``warmup`` (epochs or
    iterations), ``decay`` (kind), ``milestones``; ``batch`` (of all devices together, the one ``lr`` is meant for);
    ``drop_path``;  ``train_scales`` and ``test_scale`` (pixels, of every step
    that sets a size); ``augments`` (type -> options of mixing augmentations); ``transforms`` (types of the training
    pipeline); ``sampler``.
    """
    optimizer = cfg.optim_wrapper.optimizer
    warmups = [s for s in cfg.param_scheduler if s.type == "LinearLR"]
    (decay,) = (s for s in cfg.param_scheduler if s.type != "LinearLR")
    length = {"epochs": cfg.train_cfg.get("max_epochs"), "iterations": cfg.train_cfg.get("max_iters")}
    train = list(_steps(_dataset(cfg.train_dataloader).pipeline))
    test = list(_steps(_dataset(cfg.val_dataloader).pipeline)) if cfg.get("val_dataloader") else []
    augments = (cfg.model.get("train_cfg") or {}).get("augments") or []
    return {
        "optimizer": optimizer.type,
        "lr": optimizer.lr,
        "weight_decay": optimizer.weight_decay,
        "clip": (cfg.optim_wrapper.get("clip_grad") or {}).get("max_norm"),
        **{unit: number for unit, number in length.items() if number},
        "warmup": warmups[0].end if warmups else 0,
        "decay": decay.type,
        "milestones": decay.get("milestones"),
        "batch": cfg.auto_scale_lr.base_batch_size,
        "drop_path": cfg.model.backbone.get("drop_path_rate", 0.0),
        "train_scales": {size for step in train for size in _sizes(step)},
        "test_scale": [size for step in test for size in _sizes(step)],
        "augments": {a.type: a.alpha for a in augments},
        "transforms": [step.type.removeprefix("mmlisa.") for step in train],
        "sampler": cfg.train_dataloader.sampler.type,
    }


def _dataset(loader: Any) -> Any:
    dataset = loader.dataset
    while "dataset" in dataset:
        dataset = dataset.dataset
    return dataset


def _steps(pipeline: Any) -> Iterator[Any]:
    """The steps of a pipeline, those inside of RandomChoice and the like included."""
    for step in pipeline:
        if isinstance(step, list):
            yield from _steps(step)
        else:
            yield step
            yield from _steps(step.get("transforms", []))


def _sizes(step: Any) -> Iterator[Any]:
    for key in ("scale", "crop_size"):
        if key in step:
            yield tuple(step[key]) if isinstance(step[key], list | tuple) else step[key]
    yield from (tuple(scale) for scale in step.get("scales", []))
