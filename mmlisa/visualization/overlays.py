"""Drawings of predictions and annotations of detectors, segmentors and classifiers, with supervision's annotators.

Pictures are ``[H, W, 3]``, RGB, uint8. supervision, matplotlib and torchvision are imported by what draws: the hooks of every
training import this module.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import mmcv
import numpy as np
import torch
from mmengine.dist import is_main_process
from mmengine.hooks import Hook
from mmengine.registry import DATASETS
from mmengine.runner import Runner, set_random_seed
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from mmlisa.classes import Classes, Colour
from mmlisa.registry import HOOKS

LONGER_SIDE = 640  # pixels; smaller pictures are enlarged to it
_CELL = 360  # pixels of a side of a drawn sample
_OPACITY = 0.4  # masks
_MOST_LABELS = 150
_LEAST_LABELLED = 40  # pixels of an object's longer side in a drawing with a legend; text would cover smaller ones
_LISTED = 3  # classes named below a classified image
Entries = list[tuple[Colour | None, str]]  # a legend: colour of the swatch, text
Batch = Mapping[str, Any] | Sequence[Mapping[str, Any]]


@HOOKS.register_module()
class OverlayHook(Hook):
    """Draw predictions beside the annotations while a detector, segmentor or classifier is validated or tested.

    In validation, the pictures go to the backends of the visualizer: files ``vis_data/vis_image/<image>_<iteration>.png``, or the
    page of TensorBoard or W&B. In a test, they go into a folder. A video is drawn as the contact sheet of its clips.

    Args:
        interval: draw every this many-th image of the validation set; a test draws all images.
        score_thr: lowest score of an object that is drawn.
        test_out_dir: folder of the pictures of a test; None draws none.
    """

    def __init__(self, interval: int = 50, score_thr: float = 0.3, test_out_dir: str | None = None) -> None:
        self.interval, self.score_thr, self.test_out_dir = interval, score_thr, test_out_dir
        self._seen = 0
        self._taken: set[Path] = set()

    def before_val_epoch(self, runner: Runner) -> None:
        self._seen = 0
        self._taken.clear()

    def after_val_iter(self, runner: Runner, batch_idx: int, data_batch: Batch, outputs: Sequence[Any]) -> None:
        for inputs, sample in zip(_inputs(data_batch), outputs, strict=True):
            if is_main_process() and self._seen % self.interval == 0:
                name = free_path(Path(f"{Path(sample.img_path).stem}.png"), self._taken).stem
                runner.visualizer.add_image(name, self._drawing(runner.val_dataloader, inputs, sample), runner.iter)
            self._seen += 1

    def after_test_iter(self, runner: Runner, batch_idx: int, data_batch: Batch, outputs: Sequence[Any]) -> None:
        if self.test_out_dir is None:
            return
        for inputs, sample in zip(_inputs(data_batch), outputs, strict=True):
            target = free_path(Path(self.test_out_dir, f"{Path(sample.img_path).stem}.png"), self._taken)
            mmcv.imwrite(self._drawing(runner.test_dataloader, inputs, sample)[..., ::-1], str(target))

    def _drawing(self, loader: Any, inputs: Tensor, sample: Any) -> np.ndarray:
        """Draw on the clips of a video, or on the image file, whose size the annotations have."""
        picture = contact_sheet(inputs) if inputs.ndim == 5 else mmcv.imread(sample.img_path, channel_order="rgb")
        return draw_prediction(picture, sample.cpu(), Classes(loader.dataset.metainfo), score_threshold=self.score_thr)


def draw_prediction(
    picture: np.ndarray,
    sample: Any,
    classes: Classes,
    *,
    score_threshold: float = 0.3,
    side: int | None = None,
) -> np.ndarray:
    """Return a picture with a model's prediction, and with the annotations of the sample, if it has any.

    Objects get a box, a mask and a label; beside annotations, small objects are in a legend below the picture instead.
    A segmentation gets masks, and a legend below. The annotations of both are in a second picture on the left. A classification
    has its best classes below, under the annotated one.

    Args:
        picture: the image as it was read.
        sample: a data sample of mmdet, mmseg or mmpretrain, at the picture's size.
        classes: names and colours.
        score_threshold: lowest score of an object that is drawn.
        side: longer side of the drawing, or of each of the two; if None, at least :data:`LONGER_SIDE`.
    """
    canvas, scale = _resize(picture, side)
    # mmdet's samples have gt_instances without annotations, too.
    if not len(sample.get("gt_instances", ())) and not any(name in sample for name in ("gt_sem_seg", "gt_label")):
        return _panel(canvas, scale, sample, "pred", classes, score_threshold)
    if "pred_label" in sample:
        titles = {"gt": "annotation", "pred": "prediction"}
        legends = [[(None, titles[prefix]), *_class_legend(sample, prefix, classes)] for prefix in titles]
        return np.vstack([canvas, *(_strip(canvas, legend) for legend in legends)])
    truth = _panel(canvas, scale, sample, "gt", classes, 0.0, "annotation")
    prediction = _panel(canvas, scale, sample, "pred", classes, score_threshold, "prediction")
    return np.hstack([truth, np.full((len(truth), 8, 3), 255, np.uint8), prediction])


def draw_truth(picture: np.ndarray, sample: Any, classes: Classes, title: str) -> np.ndarray:
    """Return a picture with the annotations of a data sample of mmdet, mmseg or mmpretrain, and a title below."""
    return _panel(*_resize(picture), sample, "gt", classes, 0.0, title)


def draw_samples(config: Mapping[str, Any], number: int, path: Path) -> None:
    """Draw samples of a data set with their annotations and names on one sheet, after all steps of its pipeline.

    Test pipelines resize images before they load annotations, which then have the size of the file.
    """
    from torchvision.utils import make_grid

    set_random_seed(0)  # choice and augmentation
    dataset = DATASETS.build(config)
    inner = dataset
    while hasattr(inner, "dataset"):
        inner = inner.dataset
    steps = [type(step).__name__ for step in inner.pipeline.transforms]
    unresized = "LoadAnnotations" in steps and any("Resize" in step for step in steps[: steps.index("LoadAnnotations")])
    cells = []
    for index in np.random.permutation(len(dataset))[:number]:
        sample = dataset[int(index)]
        inputs, truth = sample["inputs"], sample["data_samples"]
        if inputs.ndim == 5:
            picture = contact_sheet(inputs)
        elif unresized:
            picture = mmcv.imread(truth.img_path, channel_order="rgb")
        else:  # pipelines may leave floating-point values, and beyond those of 8 bits
            picture = inputs.flip(0).permute(1, 2, 0).clamp(0, 255).byte().contiguous().numpy()
        drawn = draw_truth(picture, truth, Classes(dataset.metainfo), Path(truth.get("img_path", "")).name)
        cell = mmcv.imrescale(drawn, (_CELL - 8, _CELL - 8))
        cells.append(torch.from_numpy(mmcv.impad(cell, shape=(_CELL, _CELL), pad_val=(255,) * 3)).permute(2, 0, 1))
    sheet = make_grid(torch.stack(cells), math.ceil(math.sqrt(len(cells))), padding=0, pad_value=255)
    path.parent.mkdir(parents=True, exist_ok=True)
    mmcv.imwrite(sheet.permute(1, 2, 0).numpy()[..., ::-1], str(path))
    print(f"samples: {path}")


def contact_sheet(clips: Tensor) -> np.ndarray:
    """Return the frames of clips ``[V, 3, T, H, W]`` (BGR, uint8) on white ``[height, width, 3]`` (RGB), each clip in a row."""
    from torchvision.utils import make_grid

    frames = clips.flip(1).transpose(1, 2).flatten(0, 1)  # [V T, 3, H, W]
    return make_grid(frames, clips.shape[2], pad_value=255).permute(1, 2, 0).cpu().numpy()


def free_path(target: Path, taken: set[Path]) -> Path:
    """Return the first of ``name.png``, ``name_2.png``, … that is not in ``taken``, and add it to ``taken``."""
    number, free = 1, target
    while free.resolve() in taken:
        number += 1
        free = target.with_stem(f"{target.stem}_{number}")
    taken.add(free.resolve())
    return free


def _inputs(batch: Batch) -> Any:
    """Return the inputs of a batch, or of its first view under test-time augmentation."""
    return (batch if isinstance(batch, Mapping) else batch[0])["inputs"]


def _resize(picture: np.ndarray, side: int | None = None) -> tuple[np.ndarray, float]:
    """Return a copy whose longer side is ``side``, by default at least :data:`LONGER_SIDE`, and its scale."""
    longer = max(picture.shape[:2])
    if side is None and longer >= LONGER_SIDE:
        return picture.copy(), 1.0
    scale = (side or LONGER_SIDE) / longer
    size = [max(1, round(n * scale)) for n in picture.shape[1::-1]]
    return cv2.resize(picture, size, interpolation=cv2.INTER_AREA if side else cv2.INTER_CUBIC), scale


def _panel(
    drawing: np.ndarray,
    scale: float,
    sample: Any,
    prefix: str,
    classes: Classes,
    threshold: float,
    title: str | None = None,
) -> np.ndarray:
    """Draw annotations (``prefix='gt'``) or predictions (``'pred'``) on a resized copy of a picture; title and legend below."""
    if f"{prefix}_instances" in sample:
        instances, least = getattr(sample, f"{prefix}_instances"), _LEAST_LABELLED if title else 0
        drawing, legend = _draw_instances(drawing, scale, instances, classes, threshold, least)
    elif f"{prefix}_sem_seg" in sample:
        drawing, legend = _draw_segmentation(drawing, getattr(sample, f"{prefix}_sem_seg").data, classes)
    else:
        legend = _class_legend(sample, prefix, classes)
    if title is None and f"{prefix}_instances" in sample:
        return drawing
    return np.vstack([drawing, _strip(drawing, [*([(None, title)] if title else []), *legend])])


def _draw_instances(
    drawing: np.ndarray, scale: float, instances: Any, classes: Classes, threshold: float, least: int
) -> tuple[np.ndarray, Entries]:
    """Draw objects, with text on those of ``least`` pixels or more; the legend has the classes of the others."""
    import supervision as sv

    if "scores" in instances:
        instances = instances[instances.scores >= threshold]
    if not len(instances):
        return drawing, []
    boxes = np.asarray(getattr(instances.bboxes, "tensor", instances.bboxes), np.float32).reshape(-1, 4)
    labels = np.asarray(instances.labels, int)
    scores = np.asarray(instances.scores, np.float32) if "scores" in instances else None
    ids = np.asarray(instances.ids, int) if "ids" in instances else None
    detections = sv.Detections(boxes * scale, class_id=labels, confidence=scores, tracker_id=ids)
    order = np.argsort(-detections.box_area)  # small objects over large ones
    detections = detections[order]
    font = _font_size(drawing)
    colours = sv.ColorPalette([sv.Color(*classes.colour(label)) for label in range(int(labels.max()) + 1)])
    brightness = [np.dot(colour.as_rgb(), (0.3, 0.59, 0.11)) for colour in colours.colors]
    ink = sv.ColorPalette([sv.Color.BLACK if bright > 140 else sv.Color.WHITE for bright in brightness])
    if "masks" in instances:
        masks = getattr(instances.masks, "to_ndarray", lambda: instances.masks)()
        drawing = _fill(drawing, [(masks[i], classes.colour(int(labels[i]))) for i in order])
    scene = np.ascontiguousarray(drawing[..., ::-1])  # BGR, as the annotators expect
    scene = sv.BoxAnnotator(colours, thickness=max(2, round(font / 9))).annotate(scene, detections)
    is_large = (detections.xyxy[:, 2:] - detections.xyxy[:, :2]).max(1) >= least
    named = detections[is_large & (len(detections) <= _MOST_LABELS)]  # more labels would cover the picture
    small = np.unique(detections.class_id[~is_large]).tolist()
    legend = [(classes.colour(label), classes.name(label)) for label in small]
    names = [_label(classes.name(label), score, number) for _, _, score, label, number, *_ in named]
    style = dict(text_color=ink, font_path=_font_path(), font_size=font, text_padding=2)
    annotator = sv.RichLabelAnnotator(colours, **style, smart_position=True)
    return annotator.annotate(scene, named, names)[..., ::-1], legend


def _label(name: str, score: float | None, number: int | None) -> str:
    followed = "" if number is None or number < 0 else f" #{number}"
    return name + followed + ("" if score is None else f" {score:.2f}")


def _fill(drawing: np.ndarray, masks: Iterable[tuple[Any, Colour]]) -> np.ndarray:
    """Blend masks, pixels ``[H, W]`` or COCO's run lengths, over a drawing; one at a time, because of large images."""
    from pycocotools import mask as coco  # only detectors need it

    filled = drawing.copy()
    for mask, colour in masks:
        pixels = np.asarray(coco.decode(mask) if isinstance(mask, dict) else mask, np.uint8)
        filled[cv2.resize(255 * pixels, drawing.shape[1::-1], interpolation=cv2.INTER_LINEAR) > 127] = colour
    return cv2.addWeighted(filled, _OPACITY, drawing, 1 - _OPACITY, 0)


def _draw_segmentation(drawing: np.ndarray, labels: Any, classes: Classes) -> tuple[np.ndarray, Entries]:
    """Fill every class but one called background; the legend begins with the largest share."""
    labels = np.asarray(labels).squeeze()
    present, counts = np.unique(labels[labels != 255], return_counts=True)  # 255: not annotated
    by_size = [int(present[i]) for i in np.argsort(-counts) if classes.name(int(present[i])) != "background"]
    masks = {label: labels == label for label in by_size}
    legend = [(classes.colour(i), f"{classes.name(i)} {mask.mean():.0%}") for i, mask in masks.items()]
    return _fill(drawing, [(mask, classes.colour(i)) for i, mask in masks.items()]), legend


def _class_legend(sample: Any, prefix: str, classes: Classes) -> Entries:
    if prefix == "gt" or "pred_score" not in sample:
        labels = np.asarray(getattr(sample, f"{prefix}_label", ())).reshape(-1)  # a test set may have none
        return [(classes.colour(int(label)), classes.name(int(label))) for label in labels]
    scores = np.asarray(sample.pred_score, np.float32)
    best = [int(label) for label in np.argsort(-scores)[:_LISTED]]
    return [(classes.colour(label), f"{classes.name(label)} {scores[label]:.2f}") for label in best]


def _font_path() -> str:
    import matplotlib

    return str(Path(matplotlib.get_data_path(), "fonts", "ttf", "DejaVuSans.ttf"))


def _font_size(drawing: np.ndarray) -> int:
    return max(13, round((drawing.shape[0] * drawing.shape[1]) ** 0.5 / 48))


def _strip(drawing: np.ndarray, entries: Entries) -> np.ndarray:
    """Return a line of text as wide as the drawing. The last entries are left out if they do not fit."""
    size, width = _font_size(drawing), drawing.shape[1]
    font, image = ImageFont.truetype(_font_path(), size), Image.new("RGB", (width, 2 * size), "white")
    draw, x = ImageDraw.Draw(image), size // 2
    for colour, text in entries:
        swatch = 0 if colour is None else size
        if x + swatch + font.getlength(text) > width:
            break
        if colour is not None:
            draw.rectangle((x, size // 2 + 1, x + round(0.7 * size), size // 2 + round(0.9 * size)), fill=colour)
        draw.text((x + swatch, size // 3), text, font=font, fill="grey" if colour is None else "black")
        x += swatch + round(font.getlength(text)) + size
    return np.asarray(image)
