"""The plan of a training: each setting with the measurement that it comes from, written as a config."""

import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined
from mmengine.config import Config

from mmlisa import config_path
from mmlisa.datasets.folder import Dataset
from mmlisa.datasets.transforms import FORMATS
from mmlisa.training.config import predicts_masks


@dataclass(frozen=True)
class Preset:
    """A shipped config to inherit, and the recipe that it was tried with.

    Attributes:
        config: its name.
        weights: where the backbone starts, for ``mmlisa.PublishedWeights``; empty for random weights.
        rate, batch: learning rate, for this many images a step.
        steps, epochs: fewest steps, and fewest passes over the images, of a training.
    """

    config: str
    weights: str
    rate: float
    batch: int
    steps: int
    epochs: int


_SWIN = "timm:swin_tiny_patch4_window7_224.ms_in1k"
_CAFORMER = "timm:caformer_s18.sail_in22k_ft_in1k"
PRESETS: dict[str, dict[str, Preset]] = {
    "detection": {
        "hylisanet": Preset("mask_rcnn_hylisanet_demo.py", "", 1.5e-3, 4, 400, 6),
        "flatten-swin-t": Preset("mask_rcnn_flatten_swin_t_host_1x_coco.py", _SWIN, 1e-4, 16, 2000, 12),
        "ivit-t": Preset("mask_rcnn_ivit_t_host_3x_coco.py", _CAFORMER, 1e-4, 16, 2000, 12),
        "picodet": Preset("picodet_castling_lcnet_demo.py", "", 1.5e-3, 8, 900, 24),
    },
    "segmentation": {
        "hylisanet": Preset("semantic_fpn_hylisanet_demo.py", "", 1.5e-3, 8, 400, 12),
        "flatten-swin-t": Preset("upernet_flatten_swin_t_160k_ade20k.py", _SWIN, 6e-5, 16, 2000, 12),
        "ivit-t": Preset("upernet_ivit_t_160k_ade20k.py", _CAFORMER, 8e-5, 16, 2000, 12),
    },
    "classification": {
        "hylisanet": Preset("classifier_hylisanet_demo.py", "", 1.5e-3, 32, 400, 12),
        "flatten-swin-t": Preset("classifier_flatten_swin_t_300e_imagenet.py", _SWIN, 1e-4, 64, 1000, 30),
        "ivit-t": Preset("classifier_ivit_t_300e_imagenet.py", _CAFORMER, 1e-4, 64, 1000, 30),
    },
}
_SCOPES = {"mmdet": "detection", "mmseg": "segmentation", "mmpretrain": "classification"}
METRICS = {"detection": "coco/bbox_mAP", "segmentation": "mIoU", "classification": "accuracy/top1"}
# Sizes of images in training: the smallest and the largest, on a CPU and on a GPU.
_SIDES = {
    "detection": ((192, 384), (512, 1333)),
    "segmentation": ((128, 320), (512, 1024)),
    "classification": ((32, 128), (224, 224)),
}
_OBJECT = 48  # pixels after resizing; a quarter of the objects may be smaller
_FEWEST = 10  # steps of a training
_ROUND = 32  # sides are multiples of the coarsest feature map's stride


@dataclass
class Plan:
    """The numbers of a training, and the reason for each under the number's name."""

    task: str
    preset: Preset
    on_gpu: bool
    side: int
    batch: int
    rate: float
    steps: int
    warm_up: int
    interval: int
    momentum: float
    workers: int
    reasons: dict[str, str]


def choose_preset(dataset: Dataset, model: str, weights: str | None, on_gpu: bool) -> tuple[Preset, str]:
    """The preset ``model``, or for ``'auto'`` the one that docs/choosing.md recommends, and the reason for the choice.

    A shipped config keeps the published weights that it names.

    Raises:
        ValueError: there is no such preset for the task, nor such a config, or the config does not suit the task or a folder.
    """
    presets, reason = PRESETS[dataset.task], "chosen by --model"
    longer = float(np.median([max(sample.size) for sample in dataset.samples]))
    if model == "auto" and not on_gpu:
        model, reason = "hylisanet", "without a GPU, a narrow network that trains from scratch"
    elif model == "auto" and longer > 1000:
        model, reason = "ivit-t", f"at images of {longer:.0f} pixels, half the time and a fifth of the memory of Swin-T"
    elif model == "auto":
        model, reason = (
            "flatten-swin-t",
            f"for images of {longer:.0f} pixels; nearly all of Swin-T's published weights fit",
        )
    if model in presets:
        preset = presets[model]
    else:
        try:
            config = Config.fromfile(config_path(model))
        except FileNotFoundError as error:
            raise ValueError(
                f"--model {model!r} is neither one of {', '.join(presets)} nor a shipped config: {error}"
            ) from error
        if (task := _SCOPES[config.default_scope]) != dataset.task:
            raise ValueError(
                f"--model {model!r} is a config for {task}; {dataset.root} is for {dataset.task}: choose one of "
                f"{', '.join(presets)}, or a config for {dataset.task}"
            )
        if "panoptic_head" in config.model or str(config.model.type).endswith("VideoClassifier"):
            raise ValueError(
                f"--model {model!r}: a {config.model.type} is not planned from a folder; choose one of {', '.join(presets)}, or "
                "write a config (docs/finetune.md)"
            )
        if "teacher" in config.model:  # its predictions are of the classes of ImageNet
            raise ValueError(
                f"--model {model!r} is distilled from a teacher for other classes; choose one of {', '.join(presets)}, or a "
                "config without a teacher"
            )
        if not dataset.has_masks and predicts_masks(config.model) and "roi_head" not in config.model:
            raise ValueError(
                f"--model {model!r} learns masks, and the objects of {dataset.root} have boxes only; choose another model"
            )
        start = config.model.backbone.get("init_cfg") or {}
        published = start.get("source", "") if start.get("type") == "mmlisa.PublishedWeights" else ""
        preset = replace(presets["flatten-swin-t"], config=model, weights=published)
    return preset if weights is None else replace(preset, weights=weights), reason


def make_plan(
    dataset: Dataset,
    preset: Preset,
    on_gpu: bool,
    *,
    side: int | None = None,
    batch: int | None = None,
    epochs: int | None = None,
) -> Plan:
    """Derive all settings except those that depend on a measured training step (:func:`adjust`).

    ``side`` is the longer side of the images in pixels, ``batch`` their number per step, ``epochs`` the passes over the images.
    """
    train = dataset.split("train")
    reasons: dict[str, str] = {}
    lowest, highest = _SIDES[dataset.task][on_gpu]
    longer = float(np.median([max(sample.size) for sample in train]))
    if side is not None:
        reasons["side"] = "chosen by --size"
    else:
        side, reasons["side"] = longer, f"the images' median longer side is {longer:.0f}"
        shares = [
            math.sqrt(entry["bbox"][2] * entry["bbox"][3]) / max(sample.size)
            for sample in train
            for entry in sample.objects
            if not entry.get("iscrowd")
        ]
        small = longer * float(np.percentile(shares, 25)) if shares else math.inf  # in an image of the median size
        if shares:
            side = longer * _OBJECT / small
            reasons["side"] += (
                f"; a quarter of the objects are smaller than {small:.0f} and should have {_OBJECT} pixels"
            )
        side = min(max(side, lowest), highest, max(longer, _ROUND))
        reasons["side"] += f"; {lowest} to {highest} on a {'GPU' if on_gpu else 'CPU'}, at most the images' own size"
        if small * side / longer < _OBJECT / 3:
            dataset.notes.append(
                f"warning: at {side:.0f} pixels a quarter of the objects are smaller than {small * side / longer:.0f} pixels, "
                "which detectors rarely find; cut the images into tiles, or give a larger --size"
            )
    side = max(_ROUND, round(side / _ROUND) * _ROUND)
    half = 2 ** int(math.log2(max(2, len(train) // 2)))
    recipe = "the batch of the recipe" if preset.batch <= half else "half of the images"
    reasons["batch"] = "chosen by --batch" if batch else recipe
    batch = batch or min(preset.batch, half)
    per_epoch = math.ceil(len(train) / batch)
    if epochs:
        steps, reasons["steps"] = epochs * per_epoch, f"{epochs} epochs of {per_epoch} steps, at least {_FEWEST} steps"
    else:
        steps = max(preset.steps, preset.epochs * per_epoch)
        reasons["steps"] = f"at least {preset.steps} steps and {preset.epochs} epochs of {per_epoch} steps"
    cores = os.cpu_count() or 1
    workers = min(8, max(0, cores - 2))
    reasons["workers"] = f"of {cores} cores, two are left to the training and the system"
    plan = Plan(dataset.task, preset, on_gpu, side, batch, 0.0, 0, 0, 0, 0.0, workers, reasons)
    _set_schedule(plan, steps)
    return plan


def _set_schedule(plan: Plan, steps: int) -> None:
    """Sets what follows from the number of steps and the batch."""
    preset = plan.preset
    plan.steps = max(_FEWEST, steps)
    plan.rate = float(f"{preset.rate * plan.batch / preset.batch:.3g}")
    plan.reasons["rate"] = f"{preset.rate:g} for {preset.batch} images, in proportion"
    plan.warm_up = max(1, min(3000, plan.steps // 10))
    plan.reasons["warm_up"] = "a tenth of the steps"
    plan.interval = max(1, plan.steps // (4 if plan.steps < 1000 else 10))
    plan.reasons["interval"] = "a quarter of the training, or a tenth of a long one, between two validations"
    plan.momentum = float(f"{min(0.5, 20 / plan.steps):.3g}")


def adjust(plan: Plan, probe: dict[str, Any], minutes: float | None, *, keep_batch: bool) -> str:
    """Fits the batch to the memory, and the steps to the minutes, by what a probed step took.

    Args:
        plan: changed in place.
        probe: of :mod:`mmlisa.fit.probe`.
        minutes: for the training; None for the steps of the plan.
        keep_batch: the user has chosen the batch.

    Returns:
        A warning if the memory does not hold the batch; empty otherwise.
    """
    fitting = int(0.8 * (probe["available"] - probe["fixed"]) / max(1, probe["per_image"]))
    memory = f"{probe['per_image'] / 2**20:.0f} MiB an image (one probed step), {probe['available'] / 2**30:.1f} GiB are free"
    if not keep_batch:
        # UperNet pools maps to one pixel, of which batch norm needs two.
        smaller = min(plan.batch, 2 ** int(math.log2(max(2 if plan.task == "segmentation" else 1, fitting))))
        known = "the most that fits" if smaller < plan.batch else f"{plan.reasons['batch']}, which fits"
        plan.reasons["batch"] = f"{known}: {memory}"
        steps = plan.steps * plan.batch // smaller  # a smaller batch sees as many images
        if smaller < plan.batch:
            plan.reasons["steps"] += f", as many images as in {plan.steps} steps of {plan.batch}"
        plan.batch = smaller
        _set_schedule(plan, steps)
    seconds = probe["seconds_per_image"] * plan.batch
    if minutes is not None:
        # A quarter of the time goes to validations, checkpoints and loading.
        plan.reasons["steps"] = f"--minutes {minutes:g} at {seconds:.2f} s a step, with a quarter left to validations"
        _set_schedule(plan, int(0.75 * 60 * minutes / seconds))
    else:
        plan.reasons["steps"] += f"; about {max(1, round(plan.steps * seconds / 60))} min at {seconds:.2f} s a step"
    if fitting >= plan.batch:
        return ""
    return (
        f"warning: a step on {plan.batch} image{'s' * (plan.batch > 1)} may need more memory than there is: {memory}, and the "
        f"weights take {probe['fixed'] / 2**30:.1f} GiB; give a smaller --batch or --size"
    )


# --- the config --------------------------------------------------------------------------------------------------------------


def write_config(plan: Plan, dataset: Dataset, folder: Path, title: str, start: str) -> str:
    """The text of the config of a run in ``folder``, an absolute path; the annotations are in ``folder/data``.

    ``title`` is its first comment, and ``start`` a comment that says what the training starts from.
    """
    weights, cfg = plan.preset.weights, Config.fromfile(config_path(plan.preset.config))
    base = cfg.model
    learns_masks = predicts_masks(base)
    masks = dataset.has_masks and learns_masks
    model: dict[str, Any] = {}
    if plan.task == "segmentation":
        model["data_preprocessor"] = {"size": (plan.side, plan.side), "test_cfg": {"size_divisor": _ROUND}}
    elif plan.task == "classification" and base.get("train_cfg"):
        model["train_cfg"] = None  # Mixup and CutMix need more data than a small set has
    elif learns_masks and not masks:
        model["roi_head"] = {"mask_roi_extractor": None, "mask_head": None}
    if (base.get("data_preprocessor") or {}).get("batch_augments"):
        model["data_preprocessor"] = {"batch_augments": None}  # they resize images to the size of the recipe
    _set_class_counts(base, model, len(dataset.classes))
    backbone: dict[str, Any] = {}
    if "image_size" in base.backbone and not weights:
        backbone["image_size"] = plan.side
    if weights.startswith("timm:"):
        backbone["init_cfg"] = dict(_delete_=True, type="mmlisa.PublishedWeights", source=weights)
    elif base.backbone.get("init_cfg", {}).get("type") == "mmlisa.PublishedWeights":
        backbone["init_cfg"] = None
    if backbone:
        model["backbone"] = backbone

    # Other formats than these are loaded only if they are named, since damage in them may pass unseen.
    formats = {sample.format for sample in dataset.samples} - {""}
    environment = Environment(
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined
    )
    environment.filters["repr"] = repr
    # A comment ends with its line, and folders may have line breaks in their names.
    environment.filters["line"] = lambda text: " ".join(text.splitlines())
    template = environment.from_string(Path(__file__).with_name("config.py.jinja").read_text(encoding="utf-8"))
    return template.render(
        plan=plan,
        folder=folder,
        title=title,
        start=start,
        root=str(dataset.root),
        classes=tuple(dataset.classes),
        label_map=dataset.label_map,
        formats=sorted({*FORMATS, *formats}) if formats - {*FORMATS} else [],
        masks=masks,
        load_from=weights if weights and not weights.startswith("timm:") else None,
        model=_code(model, in_lines=True),
        has_adamw=cfg.optim_wrapper.optimizer.type == "AdamW",  # for which the rates of the presets are
        has_test=bool(dataset.split("test")),
        metric_name=METRICS[plan.task],
    )


def _code(value: Any, in_lines: bool = False) -> str:
    """A nested dict as it is written in configs, its outer level on lines of its own."""
    if isinstance(value, list):
        return f"[{', '.join(map(_code, value))}]"
    if not isinstance(value, dict):
        return repr(value)
    entries = [f"{key}={_code(item)}" for key, item in value.items()]
    return "dict(\n    " + ",\n    ".join(entries) + ",\n)" if in_lines and value else f"dict({', '.join(entries)})"


def _set_class_counts(base: Any, changes: dict[str, Any], number: int) -> None:
    """Adds ``num_classes`` for each part of a model that has it and is not switched off."""
    for key, part in base.items():
        if key in ("teacher", "loss_decode") or changes.get(key, {}) is None:
            continue
        if isinstance(part, list) and any(isinstance(each, dict) for each in part):  # such as the stages of a cascade
            changed = []
            for each in part:
                _set_class_counts({"": each}, inner := {}, number)
                stage = Config(each)
                stage.merge_from_dict(inner.get("", {}))
                changed.append(stage.to_dict())
            if changed != part:
                changes[key] = changed  # a config replaces lists as a whole
        if isinstance(part, dict):
            inner = dict(changes.get(key, {}))
            if "num_classes" in part:
                inner["num_classes"] = number
                weights = (part.get("loss_cls") or {}).get("class_weight")
                # Mask2Former's, the last for none
                if isinstance(weights, list) and len(weights) == part["num_classes"] + 1:
                    inner["loss_cls"] = {"class_weight": [1.0] * number + weights[-1:]}
            _set_class_counts(part, inner, number)
            if inner:
                changes[key] = inner
