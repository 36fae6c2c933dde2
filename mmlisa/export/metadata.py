"""Metadata of an exported file: how the runtime reads images, and what the results mean."""

import json
from inspect import signature
from pathlib import Path
from typing import Any

from mmengine.config import Config

from mmlisa import __version__, runtime
from mmlisa.classes import Classes
from mmlisa.errors import UserError
from mmlisa.training.config import find_metainfo, find_test_pipeline, innermost_dataset, type_name
from mmlisa.training.runner import warn_of_names

from .heads import clips_boxes, rtmdet_ins
from .whole import EndToEnd, takes_rgb

# Steps of a test pipeline that do not change the image.
_NEUTRAL = ("LoadImageFromFile", "LoadAnnotations", "PackDetInputs", "PackSegInputs", "PackInputs")


def reading_steps(cfg: Config) -> list[tuple[str, dict[str, Any]]]:
    """Return the steps of a config's test pipeline that change the image, keys of :data:`runtime.STEPS`, with their options.

    Raises:
        UserError: a step or an option that the runtime does not have, a step after ``Pad``, or no test pipeline.
    """
    steps: list[tuple[str, dict[str, Any]]] = []
    for step in find_test_pipeline(cfg):
        name = type_name(step)
        if name in _NEUTRAL and step.get("color_type", "color") == "color":
            continue
        options = {key: value for key, value in step.items() if key != "type" and value not in (None, False)}
        try:
            signature(runtime.STEPS[name]).bind(None, **options)
            is_known = not steps or steps[-1][0] != "Pad"
        except (KeyError, TypeError):
            is_known = False
        if not is_known:
            raise UserError(
                f"the runtime does not have the step {dict(step)} of the test pipeline; --raw exports the network alone"
            )
        steps.append((name, options))
    return steps


def final_size(cfg: Config, module: EndToEnd) -> tuple[int, ...] | None:
    """Return H and W of every image that the test pipeline returns (T, H and W of a clip), or None if they differ.

    Raises:
        UserError: see :func:`reading_steps`; a padding of a segmentor.
    """
    if module.task == "video":
        return tuple(module.model.backbone.image_size)
    steps = reading_steps(cfg)
    name, options = steps[-1] if steps else ("", {})
    if name == "Pad" and module.task == "segmentation":
        raise UserError("step Pad of the test pipeline: MMSegmentation stretches padded maps, and the runtime does not")
    if options.get("pad_to_square") and len(steps) > 1:  # after a Resize to a square, as in YOLOX
        options = steps[-2][1] | {"keep_ratio": False}
    size = next((options[key] for key in ("scale", "crop_size", "size") if key in options), None)
    if size is None or name == "ResizeEdge" or options.get("keep_ratio"):
        return None
    width, height = [size, size] if isinstance(size, int) else size
    return None if name == "Pad" and width != height else (height, width)  # an image may be higher than wide


def describe(cfg: Config, module: EndToEnd, metainfo: dict[str, Any], **tiles: Any) -> dict[str, str]:
    """Return the metadata of a file for :mod:`mmlisa.runtime`, JSON by key.

    ``metainfo`` holds the names of the classes; if it is empty, the test data have them. ``tiles`` are ``tile`` and ``overlap``
    of a detector that predicts on tiles.

    Raises:
        UserError: see :func:`reading_steps`; more names than a head has classes. Fewer names are a warning.
    """
    prepare = module.preprocess
    head = getattr(module.model, "roi_head", None) or getattr(module.model, "bbox_head", None)
    test_cfg = getattr(head, "test_cfg", None) or {}
    names = Classes(metainfo or find_metainfo(innermost_dataset(cfg, "test"))).names
    warn_of_names(cfg.model, names, metainfo)
    steps = [] if module.task == "video" else reading_steps(cfg)
    pads = bool(steps) and steps[-1][0] == "Pad"
    entries = dict(
        format=runtime.FORMAT,
        task=module.task,
        classes=list(names),
        mean=prepare.mean.flatten().tolist(),
        std=prepare.std.flatten().tolist(),
        channels="RGB" if takes_rgb(module.model.data_preprocessor) else "BGR",
        uint8=prepare.uint8,
        border=(prepare.mean + prepare.value * prepare.std).flatten().tolist(),
        steps=steps,
        score_threshold=0.3,
        # MMDetection takes an image that its pipeline has padded for the whole.
        clip=module.task == "detection" and clips_boxes(head) and not pads,
        align_corners=getattr(module.model, "align_corners", False),
        mask_threshold=test_cfg.get("mask_thr_binary", 0.5),
        # RTMDet-Ins has masks of the whole image, all others of the box.
        mask_stride=head.prior_generator.strides[0][0] if getattr(module, "detect", None) is rtmdet_ins else 0,
        config=Path(cfg.filename or "").name,
        version=__version__,
        **tiles,
    )
    return {f"mmlisa_{key}": json.dumps(value) for key, value in entries.items()}
