"""Drawing of predictions and annotations of detectors, segmentors and classifiers, with supervision's annotators.

Pictures are ``[H, W, 3]``, RGB, uint8. supervision and matplotlib are imported by what draws: the hooks of every training import
this module.
"""

from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from mmlisa.checkpoints import atomic_path
from mmlisa.classes import Classes, Colour

LONGER_SIDE = 640  # pixels; smaller pictures are enlarged to it
_OPACITY = 0.4  # masks
_MOST_LABELS = 150
_LEAST_LABELLED = 40  # pixels of an object's longer side in a drawing with a legend; text would cover smaller ones
_LISTED = 3  # classes named below a classified image

Entries = list[tuple[Colour | None, str]]  # a legend: colour of the swatch, text


def draw_prediction(
    picture: np.ndarray,
    sample: Any,
    classes: Classes,
    *,
    score_threshold: float = 0.3,
    with_truth: bool = False,
    side: int | None = None,
) -> np.ndarray:
    """Return a picture with a model's prediction.

    Objects get a box, a mask and a label; beside annotations, small objects are in a legend below the picture instead.
    A segmentation gets masks, and a legend below. A classification has its best classes below, under the annotated one.

    Args:
        picture: the image as it was read.
        sample: a data sample of mmdet, mmseg or mmpretrain, at the picture's size.
        classes: names and colours.
        score_threshold: lowest score of an object that is drawn.
        with_truth: draw the annotations, too; objects and segments in a second picture on the left.
        side: longer side of the drawing, or of each of the two; if None, at least :data:`LONGER_SIDE`.
    """
    canvas, scale = _resize(picture, side)
    if not with_truth:
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


def has_truth(sample: Any) -> bool:
    """Return whether a data sample has annotations."""
    if "gt_instances" in sample:
        return len(sample.gt_instances) > 0
    return "gt_sem_seg" in sample or "gt_label" in sample


def write_video(path: str | Path, frames: Iterable[np.ndarray], rate: float) -> None:
    """Write frames ``[H, W, 3]`` (RGB, uint8) as MPEG-4 at ``rate`` per second; nothing after an error or without frames."""
    import supervision as sv

    frames = iter(frames)
    if (first := next(frames, None)) is None:
        return
    height, width = first.shape[:2]
    with (
        atomic_path(path, Path(path).suffix) as partial,
        sv.VideoSink(str(partial), sv.VideoInfo(width=width, height=height, fps=rate)) as sink,
    ):
        for frame in chain([first], frames):
            sink.write_frame(np.ascontiguousarray(frame[..., ::-1]))


def free_path(target: Path, taken: set[Path]) -> Path:
    """Return the first of ``name.png``, ``name_2.png``, … that is not in ``taken``, and add it to ``taken``."""
    number, free = 1, target
    while free.resolve() in taken:
        number += 1
        free = target.with_stem(f"{target.stem}_{number}")
    taken.add(free.resolve())
    return free


def _resize(picture: np.ndarray, side: int | None = None) -> tuple[np.ndarray, float]:
    """Return a copy whose longer side is ``side``, by default at least :data:`LONGER_SIDE`, and its scale."""
    longer = max(picture.shape[:2])
    if side is None and longer >= LONGER_SIDE:
        return picture.copy(), 1.0
    scale = (side or LONGER_SIDE) / longer
    size = [2 * max(1, round(n * scale / 2)) for n in picture.shape[1::-1]]  # even, because video encoders need that
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
    detections = sv.Detections(boxes * scale, class_id=labels, confidence=scores)
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
    names = [classes.name(label) + ("" if score is None else f" {score:.2f}") for _, _, score, label, *_ in named]
    style = dict(text_color=ink, font_path=_font_path(), font_size=font, text_padding=2)
    annotator = sv.RichLabelAnnotator(colours, **style, smart_position=True)
    return annotator.annotate(scene, named, names)[..., ::-1], legend


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
