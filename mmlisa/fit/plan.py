"""The plan of a training: each setting with the measurement that it comes from, written as a config."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from mmengine.config import Config

from mmlisa import config_path
from mmlisa.data.dataset import Dataset
from mmlisa.errors import UserError
from mmlisa.training.config import predicts_masks, published_weights, type_name


@dataclass(frozen=True)
class Options:
    """The settings of a run; see ``mmlisa fit --help``."""

    data: str
    task: str = ""
    model: str = "auto"
    weights: str | None = None
    epochs: int | None = None
    size: int | None = None
    batch: int | None = None
    tile: int | str = "auto"
    ignore: tuple[int, ...] = ()
    background: str = "auto"
    freeze: bool = False


@dataclass(frozen=True)
class Preset:
    """A shipped config to inherit, and the recipe that it was tried with."""

    config: str  # name or path
    weights: str  # where the backbone starts, for mmlisa.PublishedWeights; empty for random weights
    rate: float  # learning rate at this batch
    batch: int
    steps: int  # fewest steps of a training
    epochs: int  # fewest passes over the images
    regions: int | None = None  # boxes that a two-stage detector samples in training; the config's if None
    stride: int = 32  # of the coarsest map; sides are multiples of it


_SWIN = "timm:swin_tiny_patch4_window7_224.ms_in1k"
_CAFORMER = "timm:caformer_s18.sail_in22k_ft_in1k"
_DINOV2 = "timm:vit_small_patch14_dinov2.lvd142m"
_DINOV3 = "timm:vit_small_patch16_dinov3.lvd1689m"
PRESETS: dict[str, dict[str, Preset]] = {
    "detection": {
        "hylisanet": Preset("mask_rcnn_hylisanet_demo.py", "", 1.5e-3, 4, 400, 6, regions=128),
        "flatten-swin-t": Preset("mask_rcnn_flatten_swin_t_host_1x_coco.py", _SWIN, 1e-4, 16, 2000, 12),
        "ivit-t": Preset("mask_rcnn_ivit_t_host_3x_coco.py", _CAFORMER, 1e-4, 16, 2000, 12),
        "picodet": Preset("picodet_castling_lcnet_demo.py", "", 1.5e-3, 8, 900, 24),
        "dinov2-s": Preset("mask_rcnn_dinov2_s_demo.py", _DINOV2, 5e-4, 4, 400, 6, regions=128, stride=56),
        "dinov3-s": Preset("mask_rcnn_dinov3_s_demo.py", _DINOV3, 5e-4, 4, 400, 6, regions=128),
    },
    "segmentation": {
        "hylisanet": Preset("semantic_fpn_hylisanet_demo.py", "", 1.5e-3, 8, 400, 12),
        "flatten-swin-t": Preset("upernet_flatten_swin_t_160k_ade20k.py", _SWIN, 6e-5, 16, 2000, 12),
        "ivit-t": Preset("upernet_ivit_t_160k_ade20k.py", _CAFORMER, 8e-5, 16, 2000, 12),
        "dinov2-s": Preset("upernet_dinov2_s_demo.py", _DINOV2, 5e-4, 8, 400, 12, stride=56),
        "dinov3-s": Preset("upernet_dinov3_s_demo.py", _DINOV3, 5e-4, 8, 400, 12),
    },
    "classification": {
        "hylisanet": Preset("classifier_hylisanet_demo.py", "", 1.5e-3, 32, 400, 12),
        "flatten-swin-t": Preset("classifier_flatten_swin_t_300e_imagenet.py", _SWIN, 1e-4, 64, 1000, 30),
        "ivit-t": Preset("classifier_ivit_t_300e_imagenet.py", _CAFORMER, 1e-4, 64, 1000, 30),
        "dinov2-s": Preset("classifier_dinov2_s_demo.py", _DINOV2, 5e-4, 32, 400, 12, stride=56),
        "dinov3-s": Preset("classifier_dinov3_s_demo.py", _DINOV3, 5e-4, 32, 400, 12),
    },
}


class _Task(NamedTuple):
    library: str
    metric: str
    cpu_sides: tuple[int, int]  # smallest and largest size of images in training
    gpu_sides: tuple[int, int]


_TASKS = {
    "detection": _Task("mmdet", "coco/bbox_mAP", (192, 384), (512, 1333)),
    "segmentation": _Task("mmseg", "mIoU", (128, 320), (512, 1024)),
    "classification": _Task("mmpretrain", "accuracy/top1", (32, 128), (224, 224)),
}
_OBJECT = 48  # pixels after resizing; a quarter of the objects may be smaller
_SMALL = 16  # pixels after resizing; detectors rarely find smaller objects
_TILE = 640
OVERLAP = 0.2  # share of a tile that the next one repeats
_MOST_DETECTIONS = 100  # most objects per image in the recipes; a detector needs twice as many as an image has
_FEWEST = 10  # steps of a training


@dataclass
class Plan:
    """The numbers of a training, and the reason for each that depends on the data, under the number's name."""

    task: str
    preset: Preset
    on_gpu: bool
    tiles: bool
    side: int  # longer side of the images, or the side of a tile
    batch: int
    rate: float
    steps: int
    reasons: dict[str, str]
    freeze: bool = False  # train the neck and the heads alone


def make_plan(dataset: Dataset, options: Options, on_gpu: bool) -> Plan:
    """Derive the settings of a training from the data. An option that does not fit the task is a UserError."""
    preset, reason = _choose_preset(dataset, options, on_gpu)
    reasons = {"model": reason, "batch": "chosen by --batch"}
    has_tiles, side, reasons["side"] = _choose_side(dataset, options, on_gpu)
    side = max(preset.stride, round(side / preset.stride) * preset.stride)
    sizes = [sample.size for sample in dataset.split("train")]
    count = sum(math.prod(-(-length // side) for length in size) for size in sizes) if has_tiles else len(sizes)
    batch = options.batch
    if batch is None:
        batch = min(preset.batch, 2 ** int(math.log2(max(2, count // 2))))
        reasons["batch"] = f"{preset.batch} in the recipe, at most half of the {'tiles' if has_tiles else 'images'}"
    per_epoch = math.ceil(count / batch)
    if options.epochs:
        steps = options.epochs * per_epoch
        reasons["steps"] = f"{options.epochs} epochs of {per_epoch} steps, at least {_FEWEST} steps"
    else:
        steps = max(preset.steps, preset.epochs * per_epoch)
        reasons["steps"] = f"{preset.steps} steps or {preset.epochs} epochs of {per_epoch} steps, whichever is longer"
    rate = float(f"{preset.rate * batch / preset.batch:.3g}")
    return Plan(
        dataset.task, preset, on_gpu, has_tiles, side, batch, rate, max(_FEWEST, steps), reasons, options.freeze
    )


def _choose_preset(dataset: Dataset, options: Options, on_gpu: bool) -> tuple[Preset, str]:
    """Return the preset ``--model``, or else the one that docs/choosing.md recommends, and the reason for the choice."""
    presets, model, reason = PRESETS[dataset.task], options.model, "chosen by --model"
    longer = float(np.median([max(sample.size) for sample in dataset.samples]))
    if model == "auto" and not on_gpu:
        model, reason = "hylisanet", "without a GPU, a narrow network that trains from scratch"
    elif model == "auto" and longer > 1000:
        model, reason = "ivit-t", f"at images of {longer:.0f} pixels, half the time and a fifth of the memory of Swin-T"
    elif model == "auto":
        model, reason = "flatten-swin-t", f"for images of {longer:.0f} pixels; nearly all weights of Swin-T fit"
    preset = presets.get(model) or (_read_preset(model, dataset.task) if model.endswith(".py") else None)
    if preset is None:
        remedy = f"choose one of {', '.join(presets)}, or a config for it"
        raise UserError(f"--model {model!r} is not for {dataset.task}; {remedy}")
    if options.weights is not None:
        preset = replace(preset, weights=options.weights)
    if options.freeze and not preset.weights:
        raise UserError(f"--freeze: the backbone of {model} would keep random weights; give its weights as --weights")
    return preset, reason


def _read_preset(path: str, task: str) -> Preset | None:
    """Return the recipe of a config; None if it is for another task."""
    cfg = Config.fromfile(path)
    if cfg.get("default_scope") != _TASKS[task].library:
        return None
    weights = cfg.get("load_from") or published_weights(cfg.model.backbone).get("source", "")
    batch = cfg.get("auto_scale_lr", {}).get("base_batch_size", cfg.train_dataloader.batch_size)
    rate, length = cfg.optim_wrapper.optimizer.lr, (cfg.train_cfg.get(key, 0) for key in ("max_iters", "max_epochs"))
    return Preset(str(Path(path).absolute()), weights, rate, batch, *length)


def _choose_side(dataset: Dataset, options: Options, on_gpu: bool) -> tuple[bool, float, str]:
    """Return whether to train on tiles, the side of the tiles or the longer side of the images, and the reason for it.

    At this side, three quarters of the objects are large enough.
    """
    train, tile, device = dataset.split("train"), options.tile, "GPU" if on_gpu else "CPU"
    lowest, highest = _TASKS[dataset.task].gpu_sides if on_gpu else _TASKS[dataset.task].cpu_sides
    longer, longest = (float(choose([max(sample.size) for sample in train])) for choose in (np.median, max))
    pairs = ((entry["bbox"], sample.size) for sample in train for entry in sample.counted())
    shares = [math.sqrt(box[2] * box[3]) / max(size) for box, size in pairs]
    small = longer * float(np.percentile(shares, 25)) if shares else math.inf  # in an image of the median size
    if isinstance(tile, int) and dataset.task == "classification":
        raise UserError(f"--tile {tile}: a classifier takes whole images; leave --tile out")
    if isinstance(tile, int) and tile < longest:
        return True, tile, "side of the tiles; chosen by --tile"
    if isinstance(tile, int):
        text = f"--tile {tile} is not smaller than the largest image, {longest:.0f} pixels"
        dataset.notes.append(f"warning: {text}; the training takes whole images")
    elif tile == "auto" and dataset.task != "classification" and not options.size:
        tile, seen = min(_TILE, highest), small * min(1, highest / longer)
        if seen < _SMALL and tile < longest:
            where = f"{highest} pixels, the largest images on a {device}"
            reason = f"at {where}, a quarter of the objects would have less than {seen:.0f} pixels"
            return True, tile, f"side of the tiles; {reason}"
    if options.size:
        return False, options.size, "chosen by --size"
    side, reason = longer, f"the images' median longer side is {longer:.0f}"
    if small < math.inf:
        side = longer * _OBJECT / small
        reason += f"; a quarter of the objects are smaller than {small:.0f} and should have {_OBJECT} pixels"
    side = min(max(side, lowest), highest, longer)
    if (seen := small * side / longer) < _SMALL:
        text = f"at {side:.0f} pixels a quarter of the objects are smaller than {seen:.0f} pixels, which is too small"
        dataset.notes.append(f"warning: {text}; train on tiles (--tile), or give a larger --size")
    return False, side, f"{reason}; {lowest} to {highest} on a {device}, at most the images' own size"


def write_configs(plan: Plan, dataset: Dataset, folder: Path) -> dict[str, str]:
    """Return the text of each config of a run in ``folder`` (absolute), whose annotations are in ``folder/data``, by its name.

    It is ``config.py``. A detector on tiles has its training in ``plain.py``, on which ``config.py`` builds.
    """
    weights, cfg = plan.preset.weights, Config.fromfile(config_path(plan.preset.config))
    base, optimizer = cfg.model, cfg.optim_wrapper.optimizer
    learns_masks = predicts_masks(base)
    masks = dataset.has_masks and learns_masks
    model = _class_counts(base, len(dataset.classes))
    if plan.task == "segmentation":
        model["data_preprocessor"] = {"size": (plan.side, plan.side), "test_cfg": {"size_divisor": plan.preset.stride}}
        if plan.tiles:
            stride = max(1, round(plan.side * (1 - OVERLAP)))
            model["test_cfg"] = {"mode": "slide", "crop_size": (plan.side, plan.side), "stride": (stride, stride)}
    elif plan.task == "classification" and base.get("train_cfg"):
        model["train_cfg"] = None  # Mixup and CutMix need more data than a small set has
    elif learns_masks and not masks and "roi_head" not in base:
        raise UserError(f"--model '{plan.preset.config}' needs outlines, but the objects are boxes; choose another")
    elif learns_masks and not masks:
        model["roi_head"] |= {"mask_roi_extractor": None, "mask_head": None}
    if plan.task == "detection" and base.get("data_preprocessor", {}).get("pad_size_divisor", 1) < plan.preset.stride:
        # Recipes that crop to a fixed size in the pipeline, which this config replaces.
        model["data_preprocessor"] = {"pad_size_divisor": plan.preset.stride, "pad_mask": masks}
    if plan.preset.regions:
        model["train_cfg"] = {"rcnn": {"sampler": {"num": plan.preset.regions}}}
    most = 2 * max(len(sample.objects) for sample in dataset.samples)
    if most > _MOST_DETECTIONS:
        limit = {"max_per_img": most}
        model["test_cfg"] = {"rcnn": limit} if "rcnn" in base.test_cfg else limit
    backbone: dict[str, Any] = {"frozen_stages": _count_stages(base.backbone)} if plan.freeze else {}
    if "image_size" in base.backbone and not weights:
        backbone["image_size"] = plan.side
    own = published_weights(base.backbone)
    start = own | dict(type="mmlisa.PublishedWeights", source=weights)
    if weights.startswith("timm:"):
        backbone["init_cfg"] = start
        if "init_cfg" in base.backbone:  # else MMEngine would leave the key in
            backbone["init_cfg"]["_delete_"] = True
    elif own:
        backbone["init_cfg"] = None
    if weights and not weights.startswith("timm:"):  # a file may hold a neck and heads, too
        model["init_cfg"] = start
    if backbone:
        model["backbone"] = backbone

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters["repr"] = repr
    text = environment.get_template("config.py.jinja").render(
        plan=plan,
        folder=folder,
        root=str(dataset.root),
        classes=tuple(dataset.classes),
        masks=masks,
        model=Config(dict(model=model)).pretty_text.rstrip(),
        # The rates of the presets are for AdamW, that of a user's config is for its own optimizer.
        keeps_optimizer=optimizer.type == "AdamW" or optimizer.lr == plan.preset.rate,
        has_test=bool(dataset.split("test")),
        metric_name=_TASKS[plan.task].metric,
        workers=min(8, max(0, (os.cpu_count() or 1) - 2)),
    )
    if not (plan.tiles and plan.task == "detection"):
        return {"config.py": text}
    return {"plain.py": text, "config.py": environment.get_template("tiled.py.jinja").render(overlap=OVERLAP)}


def _count_stages(backbone: Mapping[str, Any]) -> int:
    """Return the number of stages of a backbone of ours; another one is a UserError."""
    from mmlisa.models import backbones

    host = getattr(backbones, type_name(backbone), None)
    if host is None:
        raise UserError(
            f"--freeze: {type_name(backbone)} is not a backbone of mmlisa; set its frozen_stages in the config"
        )
    return len(host.stage_sizes(host.resolve_arch(backbone.get("arch"))))


def _class_counts(config: Mapping[str, Any], number: int, whole: bool = False) -> dict[str, Any]:
    """Return the changes of a config, with ``whole`` the changed config, that set each ``num_classes`` to a number."""
    changes = (dict(config) if whole else {}) | ({"num_classes": number} if "num_classes" in config else {})
    for key, inner in config.items():
        changed: Any = None
        if isinstance(inner, dict) and key != "loss_decode":
            changed = _class_counts(inner, number, whole)
        elif isinstance(inner, list):  # the heads of a cascade; a config can only replace the list
            changed = [_class_counts(one, number, whole=True) if isinstance(one, dict) else one for one in inner]
            if key == "class_weight":  # Mask2Former's, the last for "no object"
                changed = inner[:1] * number + inner[-1:]
        if changed and changed != inner:
            changes[key] = changed
    return changes
