"""Comparisons by suite, as data. The candidates of a comparison differ in one thing.

A comparison is a shipped demo config plus overrides by dotted key: those of all candidates, and the backbone of each.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

Delta = dict[str, Any]  # new values by dotted key; numbers index lists
ROOT = "work_dirs/compare"  # results of the runs
_DATA = yaml.safe_load(Path(__file__).with_suffix(".yml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Candidate:
    """A backbone's config, the channels of its maps, and overrides of the task's config; ``load_from`` may contain ``{seed}``."""

    backbone: Delta
    channels: tuple[int, ...]
    training: Delta = field(default_factory=dict)


@dataclass(frozen=True)
class Comparison:
    """Candidates under one head, on the same data, with the same budget and the same seeds.

    Attributes:
        title: heading of the table.
        task: a name of :data:`TASKS`.
        candidates: candidates by name.
        baseline: name of the candidate with which the table compares the others.
        iterations: length of each training.
        size: height and width of the images.
        seeds: seeds of the runs of each candidate.
        shared: overrides of the task's config for all candidates.
    """

    title: str
    task: str
    candidates: Mapping[str, Candidate]
    baseline: str
    iterations: int
    size: int
    seeds: tuple[int, ...] = (0, 1, 2)
    shared: Delta = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """A config that ships with mmlisa, with the keys that a comparison changes.

    Attributes:
        config: name of the config.
        metric: name of the metric that is the accuracy.
        whole: value of the metric for a perfect model.
        unit: name of the metric in tables, which show percent.
        channels_key: key of the backbone's channels; their value is a number if only the last map is used.
        delta: overrides of the config.
        size_keys: keys of the size of an image, as (width, height).
    """

    config: str
    metric: str
    whole: float
    unit: str
    channels_key: str
    delta: Delta
    size_keys: tuple[str, ...] = ()


# Demo data of the comparisons: scenes for detection and segmentation, and single objects for classification.
SCENES, OBJECTS = "data/compare_scenes", "data/compare_objects"
TASKS = {name: Task(**entry) for name, entry in _DATA["tasks"].items()}

# ---- operators in one host

OPERATORS: dict[str, Delta] = _DATA["operators"]
# From scratch in a few hundred iterations: batch norm and weights scaled by their fan-in.
_FROM_SCRATCH = dict(
    norm_cfg=dict(type="BN"),
    init_cfg=dict(type="Kaiming", layer=["Linear", "Conv2d"], mode="fan_in", nonlinearity="linear"),
)


def _isotropic(operator: Delta, size: int) -> Candidate:
    """Return a narrow LiSANet-I, with a learned position and no convolution except in the operator and the patch embedding."""
    arch = dict(base="isotropic", depths=(4,), channels=(64,), num_heads=(4,), strides=(8,))
    return Candidate(
        dict(type="mmlisa.LiSANet", arch=arch, image_size=size, attention=operator, **_FROM_SCRATCH), (64,)
    )


def _pyramid(operator: Delta, size: int) -> Candidate:
    """Return a narrow LiSANet, which has convolutional positions and MLPs beside the operator."""
    channels = (32, 64, 96, 128)
    arch = dict(base="small", depths=(1, 1, 2, 1), channels=channels, num_heads=(2, 4, 6, 8))
    backbone = dict(type="mmlisa.LiSANet", arch=arch, image_size=size, attention=operator, **_FROM_SCRATCH)
    return Candidate(backbone, channels)


# Maps of strides 8, 16 and 32 for the head, from the single map of an isotropic network.
_ONE_MAP: Delta = {
    "model.neck.num_outs": 3,
    "model.rpn_head.anchor_generator.strides": [8, 16, 32],
    "model.roi_head.bbox_roi_extractor.featmap_strides": [8, 16],
    "model.roi_head.mask_roi_extractor.featmap_strides": [8, 16],
}


def _operators(
    host: Callable[[Delta, int], Candidate], size: int, names: Iterable[str] = OPERATORS
) -> dict[str, Candidate]:
    return {name: host(OPERATORS[name], size) for name in names}


# ---- backbones of equal MACs

BACKBONE_SIZE = 128


# BACKBONE_SIZE is the size of the data's image_size and img_size.
BACKBONES: dict[str, Candidate] = {
    name: Candidate(entry["backbone"], tuple(entry["channels"])) for name, entry in _DATA["backbones"].items()
}

# ---- replacement of the attention in a trained detector

_REPLACEMENT = 128  # image size
_HOST_ITERATIONS = 1500
_SWIN = BACKBONES["FLatten-Swin"]
# With the host's biases, so that its projections match those of interactive attention.
_REPLACING = ("focused linear", "LiSA", "interactive", "MILA")
_BIASES = {"interactive": dict(qkv_bias=True, proj_bias=True)}


def _replaced(operator: str | None, stages: int, start: Delta) -> Candidate:
    """Return the narrow Swin with another attention in its first stages."""
    attention = dict(attention=OPERATORS[operator] | _BIASES.get(operator, {})) if operator else {}
    backbone = _SWIN.backbone | dict(attn_type="A" * stages + "S" * (4 - stages), **attention)
    return Candidate(backbone, _SWIN.channels, start)


_FROM_HOST: Delta = {"load_from": f"{ROOT}/replacement_host/windows_0/iter_{_HOST_ITERATIONS}.pth"}
_REPLACED: dict[str, Candidate] = {
    "windows": _replaced(None, 0, _FROM_HOST),
    **{name: _replaced(name, 4, _FROM_HOST) for name in _REPLACING},
    **{f"focused linear, {stages} of 4 stages": _replaced("focused linear", stages, _FROM_HOST) for stages in (1, 2)},
    **{f"{name}, from scratch": _replaced(name, 4, {}) for name in _REPLACING},
}


def _save_last(iterations: int) -> Delta:
    return dict(type="CheckpointHook", by_epoch=False, interval=iterations, save_optimizer=False)


# ---- LiSA trained at 64 pixels, tested and fine-tuned at other resolutions

_SOURCES = {"classifier": 200, "detector": 400}  # iterations at 64 pixels


def _resized(task: str, size: int, iterations: int, batch: int, start: str = "") -> Comparison:
    """Return the networks with both modes, fine-tuned and not, or at 64 pixels, where the modes are equal, one network.

    They start from the backbone, or the whole network, of the source ``start``.
    """
    channels, candidates, training = (16, 32, 64, 96), {}, {}
    arch = dict(base="small", depths=(1, 1, 2, 1), channels=channels, num_heads=(1, 2, 4, 6))
    if start:
        training["load_from"] = f"{ROOT}/resize_{start}/spectrum_{{seed}}/iter_{_SOURCES[start]}.pth"
    if size == 64:
        training["default_hooks.checkpoint"] = _save_last(iterations)
    for mode in ("spectrum", "interpolate")[: 1 if size == 64 else 2]:
        attention = dict(num_patterns=4, resize=mode)
        backbone = dict(type="mmlisa.LiSANet", arch=arch, image_size=64, attention=attention, **_FROM_SCRATCH)
        candidates[mode] = Candidate(backbone, channels, training)
        if size != 64:
            candidates[f"{mode}, not fine-tuned"] = Candidate(backbone, channels, training | {"train_cfg.max_iters": 0})
    resize = dict(type="Resize", scale=(size, size))
    changes: dict[str, Delta] = {
        "classification": {
            "train_dataloader.dataset.pipeline.1.scale": size,
            "test_dataloader.dataset.pipeline": [dict(type="LoadImageFromFile"), resize, dict(type="PackInputs")],
        },
        "detection": {  # without masks
            "model.roi_head.mask_head": None,
            "model.roi_head.mask_roi_extractor": None,
            "test_evaluator.metric": "bbox",
        },
    }
    shared = {"train_dataloader.batch_size": batch, **changes[task]}
    return Comparison(f"LiSA at {size} pixels, {task}", task, candidates, "spectrum", iterations, size, shared=shared)


# ---- the suites

# Operators of detection in the isotropic network: one of each paper, and those of most backbones.
_CHOSEN = ("LiSA", "focused linear", "linear-angular", "interactive", "softmax", "window 4x4", "depthwise 7x7")

SUITES: dict[str, dict[str, Comparison]] = {
    "operators": {
        "operators_isotropic_classification": Comparison(
            "Operators in a narrow LiSANet-I, classification",
            "classification",
            _operators(_isotropic, 64),
            "softmax",
            iterations=60,
            size=64,
        ),
        "operators_pyramid_classification": Comparison(
            "Operators in a narrow pyramid, classification",
            "classification",
            _operators(_pyramid, 64),
            "softmax",
            iterations=60,
            size=64,
        ),
        "operators_isotropic_detection": Comparison(
            "Operators in a narrow LiSANet-I, detection",
            "detection",
            _operators(_isotropic, 128, _CHOSEN),
            "softmax",
            iterations=100,
            size=128,
            shared=_ONE_MAP,
        ),
        "operators_pyramid_detection": Comparison(
            "Operators in a narrow pyramid, detection",
            "detection",
            _operators(_pyramid, 128),
            "softmax",
            iterations=100,
            size=128,
        ),
    },
    "backbones": {
        "backbones_segmentation": Comparison(
            "Backbones of equal MACs, Semantic FPN",
            "segmentation",
            BACKBONES,
            "Swin",
            iterations=300,
            size=BACKBONE_SIZE,
        ),
        "backbones_detection": Comparison(
            "Backbones of equal MACs, Mask R-CNN",
            "detection",
            BACKBONES,
            "Swin",
            iterations=200,
            size=BACKBONE_SIZE,
        ),
    },
    "replacement": {
        "replacement_host": Comparison(
            "The host",
            "detection",
            {"windows": _replaced(None, 0, {"default_hooks.checkpoint": _save_last(_HOST_ITERATIONS)})},
            "windows",
            iterations=_HOST_ITERATIONS,
            size=_REPLACEMENT,
            seeds=(0,),
        ),
        "replacement": Comparison(
            "Replaced attention in a trained detector",
            "detection",
            _REPLACED,
            "windows",
            iterations=120,
            size=_REPLACEMENT,
            seeds=(1, 2, 3),
        ),
    },
    "resize": {
        "resize_classifier": _resized("classification", 64, _SOURCES["classifier"], 32),
        "resize_detector": _resized("detection", 64, _SOURCES["detector"], 4, "classifier"),
        "resize_classification_128": _resized("classification", 128, 40, 8, "classifier"),
        "resize_classification_256": _resized("classification", 256, 40, 8, "classifier"),
        "resize_detection_128": _resized("detection", 128, 80, 4, "detector"),
        "resize_detection_256": _resized("detection", 256, 80, 4, "detector"),
    },
}
