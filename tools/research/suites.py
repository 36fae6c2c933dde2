"""Comparisons by suite, as data. The candidates of a comparison differ in one thing.

A comparison is a shipped demo config plus overrides by dotted key: those of all candidates, and the backbone of each.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Delta = dict[str, Any]  # new values by dotted key; numbers index lists
ROOT = "work_dirs/compare"  # results of the runs


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


def _both(**values: Any) -> Delta:
    """Return entries for the training and the test dataset."""
    return {f"{split}_dataloader.dataset.{key}": value for split in ("train", "test") for key, value in values.items()}


# Demo data of the comparisons: scenes for detection and segmentation, and single objects for classification.
SCENES, OBJECTS = "data/compare_scenes", "data/compare_objects"
_WIDTH = 32  # channels of the necks and the dense heads, which are as narrow as the backbones
_MASK_RCNN: Delta = {
    "model.neck.out_channels": _WIDTH,
    "model.rpn_head.in_channels": _WIDTH,
    "model.rpn_head.feat_channels": _WIDTH,
    "model.roi_head.bbox_roi_extractor.out_channels": _WIDTH,
    "model.roi_head.bbox_head.in_channels": _WIDTH,
    "model.roi_head.bbox_head.fc_out_channels": 128,
    "model.roi_head.mask_roi_extractor.out_channels": _WIDTH,
    "model.roi_head.mask_head.in_channels": _WIDTH,
    "model.roi_head.mask_head.conv_out_channels": _WIDTH,
    "model.train_cfg.rpn_proposal.max_per_img": 100,
    "model.train_cfg.rcnn.sampler.num": 64,
    "model.test_cfg.rpn.max_per_img": 100,
}
TASKS: dict[str, Task] = {
    "classification": Task(
        config="classifier_hylisanet_demo.py",
        metric="accuracy/top1",
        whole=100,
        unit="top-1",
        channels_key="model.head.in_channels",
        delta={
            **_both(type="CustomDataset", data_root=f"{OBJECTS}/"),
            "train_dataloader.dataset.data_prefix": "train",
            "test_dataloader.dataset.data_prefix": "val",
            "test_dataloader.batch_size": 64,
        },
    ),
    "detection": Task(
        config="mask_rcnn_hylisanet_demo.py",
        metric="coco/bbox_mAP_50",
        whole=1,
        unit="box AP50",
        channels_key="model.neck.in_channels",
        delta={
            **_MASK_RCNN,
            **_both(data_root=f"{SCENES}/"),
            "test_evaluator.ann_file": f"{SCENES}/annotations/instances_val.json",
        },
        size_keys=("train_dataloader.dataset.pipeline.2.scale", "test_dataloader.dataset.pipeline.1.scale"),
    ),
    "segmentation": Task(
        config="semantic_fpn_hylisanet_demo.py",
        metric="mIoU",
        whole=100,
        unit="mIoU",
        channels_key="model.neck.in_channels",
        delta={
            "model.neck.out_channels": _WIDTH,
            "model.decode_head.in_channels": [_WIDTH] * 4,
            "model.decode_head.channels": _WIDTH,
            **_both(data_root=f"{SCENES}/"),
        },
        size_keys=(
            "model.data_preprocessor.size",
            "train_dataloader.dataset.pipeline.2.scale",
            "train_dataloader.dataset.pipeline.3.crop_size",
            "test_dataloader.dataset.pipeline.1.scale",
        ),
    ),
}

# ---- operators in one host

# Heads have 16 channels.
OPERATORS: dict[str, Delta] = {
    "LiSA": dict(type="LiSA", num_patterns=8),
    "structure-aware, weights": dict(type="StructureAwareAttention", form="weights"),
    "structure-aware, dot": dict(type="StructureAwareAttention", form="dot", num_patterns=8),
    "structure-aware, Hadamard": dict(type="StructureAwareAttention", form="hadamard", num_patterns=8),
    "focused linear": dict(type="FocusedLinearAttention"),
    "linear-angular": dict(type="LinearAngularAttention"),
    "interactive": dict(type="InteractiveAttention"),
    "softmax": dict(type="SoftmaxAttention"),
    "window 4x4": dict(type="ShiftedWindowAttention", window_size=4),
    "hydra": dict(type="HydraAttention"),
    "efficient": dict(type="EfficientAttention"),
    "enhanced linear": dict(type="EnhancedLinearAttention"),
    "cosine": dict(type="CosineAttention"),
    "mean-centred": dict(type="MeanCenteredAttention"),
    "ReLU-S": dict(type="ReLUSoftmaxAttention"),
    "ReLU-E": dict(type="ReLUExpAttention"),
    "global filter": dict(type="GlobalFilter"),
    "depthwise 7x7": dict(type="DepthwiseConv", kernel_size=7),
    "average pooling 3x3": dict(type="AveragePooling"),
    "MILA": dict(type="MILAAttention"),
    "test-time training": dict(type="TTTAttention", rotary=True),
    "polarity-aware": dict(type="PolarityAwareAttention"),
    "RALA": dict(type="RALAAttention"),
    "MALA": dict(type="MALAAttention"),
    "InLine": dict(type="InLineAttention"),
    "agent": dict(type="AgentAttention", agents=16),
}
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


def _ours(name: str, **arch: Any) -> Candidate:
    backbone = dict(type=f"mmlisa.{name}", arch=arch, image_size=BACKBONE_SIZE)
    return Candidate(backbone, tuple(arch.get("channels", ())))


_SWIN_SIZES = dict(depths=(1, 1, 3, 1), channels=(32, 64, 128, 256), num_heads=(1, 2, 4, 8), window_size=4)
# Widths and depths are chosen for 90 million MACs within a tenth at 128x128, in the proportions of each family.
BACKBONES: dict[str, Candidate] = {
    "HyLiSANet": _ours(
        "LiSANet", base="hybrid-small", depths=(1, 2, 2, 1), channels=(32, 64, 128, 144), num_heads=(2, 4, 8, 9)
    ),
    "LiSANet": _ours("LiSANet", base="small", depths=(1, 2, 3, 1), channels=(32, 64, 128, 144), num_heads=(2, 4, 8, 9)),
    "FLatten-Swin": _ours("FLattenSwin", base="tiny", **_SWIN_SIZES),
    "FLatten-PVTv2": _ours(
        "FLattenPVTv2", base="b0", depths=(1, 1, 2, 1), channels=(28, 56, 128, 192), num_heads=(1, 2, 4, 6)
    ),
    "iViT": _ours("iViT", base="tiny", depths=(1, 1, 3, 1), channels=(32, 64, 120, 180), num_heads=(1, 2, 4, 6)),
    "MILA": _ours("MILA", base="tiny", depths=(1, 1, 2, 1), channels=(24, 48, 96, 192), num_heads=(1, 2, 4, 8)),
    "H-ViT³": _ours("HViT3", base="tiny", depths=(1, 1, 2, 1), channels=(24, 48, 96, 192), num_heads=(1, 2, 4, 8)),
    "PolaFormer-Swin": _ours("FLattenSwin", base="pola-tiny", **_SWIN_SIZES),
    "Castling-LCNet": Candidate(
        # Without the auxiliary branch of training, which needs a schedule.
        dict(
            type="mmlisa.CastlingLCNetViT",
            arch=dict(base="small", scale=1.0),
            attention=dict(aux=False),
            image_size=BACKBONE_SIZE,
        ),
        (64, 128, 256, 512),
    ),
    "Swin": Candidate(
        dict(
            type="mmpretrain.SwinTransformer",
            arch=dict(embed_dims=32, depths=[1, 1, 3, 1], num_heads=[1, 2, 4, 8]),
            img_size=BACKBONE_SIZE,
            window_size=4,
            pad_small_map=True,
            out_indices=(0, 1, 2, 3),
        ),
        (32, 64, 128, 256),
    ),
    "PVTv2": Candidate(
        dict(
            type="mmpretrain.TIMMBackbone",
            model_name="pvt_v2_b0",
            features_only=True,
            depths=(1, 1, 2, 1),
            embed_dims=(32, 64, 128, 192),
            num_heads=(1, 2, 4, 6),
        ),
        (32, 64, 128, 192),
    ),
    "ConvNeXt": Candidate(
        dict(
            type="mmpretrain.ConvNeXt",
            arch=dict(depths=[1, 2, 4, 2], channels=[32, 64, 128, 256]),
            out_indices=(0, 1, 2, 3),
            gap_before_final_norm=False,
        ),
        (32, 64, 128, 256),
    ),
    "ResNet": Candidate(
        dict(type="mmpretrain.ResNet", depth=18, stem_channels=16, base_channels=24, out_indices=(0, 1, 2, 3)),
        (24, 48, 96, 192),
    ),
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
