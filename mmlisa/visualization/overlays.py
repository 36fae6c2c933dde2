"""Drawing of predictions and annotations of detectors, segmentors and classifiers.

Pictures are ``[H, W, 3]``, RGB, uint8.
"""

from collections.abc import Iterable, Mapping, Sequence
from colorsys import hsv_to_rgb
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont

LONGER_SIDE = 640  # pixels; smaller pictures are enlarged to it
_FILL = 0.3  # opacity of an object's fill
_LISTED = 3  # classes named below a classified image
_WHITE, _GREY, _BLACK = (255, 255, 255), (110, 110, 110), (0, 0, 0)

Colour = tuple[int, int, int]
Box = tuple[int, int, int, int]  # left, top, right, bottom
Entries = list[tuple[Colour | None, str]]  # of a legend


class Classes:
    """Names and colours of a data set's classes.

    Args:
        meta: a data set's ``metainfo``; ``classes`` and ``palette`` are optional. Of a list of them, the first counts.
    """

    def __init__(self, meta: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None) -> None:
        meta = (meta[0] if isinstance(meta, list) else meta) or {}
        self.names: Sequence[str] = meta.get("classes") or ()
        palette = meta.get("palette")
        self._palette: Sequence[Sequence[int]] = () if palette is None or isinstance(palette, str) else palette

    def name(self, label: int) -> str:
        return str(self.names[label]) if label < len(self.names) else f"class {label}"

    def colour(self, label: int) -> Colour:
        """Return the colour of the data set's palette, or else one of evenly spread hues."""
        if label < len(self._palette):
            red, green, blue = self._palette[label]
            return int(red), int(green), int(blue)
        red, green, blue = hsv_to_rgb(label * 0.618034 % 1, 0.75, 0.95)
        return round(255 * red), round(255 * green), round(255 * blue)


class _Canvas(NamedTuple):
    picture: np.ndarray
    scale: float  # of the original picture's pixels
    font: ImageFont.FreeTypeFont

    @property
    def line(self) -> int:
        return max(1, round(self.font.size / 14))


def draw_prediction(
    picture: np.ndarray, sample: Any, classes: Classes, *, score_threshold: float = 0.3, with_truth: bool = False
) -> np.ndarray:
    """Return a picture with a model's prediction.

    Objects get an outline, a fill and a label beside them. A segmentation gets outlines, fills and a legend below the picture.
    For a classification, the best classes stand below the picture, under the annotated class.

    Args:
        picture: the image as it was read.
        sample: a data sample of mmdet, mmseg or mmpretrain, at the picture's size.
        classes: names and colours.
        score_threshold: lowest score of an object that is drawn.
        with_truth: draw the annotations, too; objects and segments in a second picture on the left.

    Returns:
        The drawing, its longer side at least :data:`LONGER_SIDE`.

    Raises:
        ValueError: the sample holds no prediction of these kinds.
    """
    if with_truth and "pred_label" in sample:  # the text is below the picture, which is shown once
        canvas = _canvas(picture)
        lines = [
            ("annotation", _class_legend(sample, "gt", classes)),
            ("prediction", _class_legend(sample, "pred", classes)),
        ]
        return np.vstack([canvas.picture, *(_strip(canvas, [(None, title), *legend]) for title, legend in lines)])
    panels = [_panel(picture, sample, "gt", classes, 0.0, "annotation")] if with_truth else []
    title = "prediction" if with_truth else None
    panels.append(_panel(picture, sample, "pred", classes, score_threshold, title))
    gap = np.full((panels[0].shape[0], 8, 3), 255, np.uint8)
    return np.hstack([panels[0], gap, panels[1]]) if with_truth else panels[0]


def draw_truth(picture: np.ndarray, sample: Any, classes: Classes) -> np.ndarray:
    """Return a picture with the annotations of a data sample of mmdet, mmseg or mmpretrain."""
    return _panel(picture, sample, "gt", classes, 0.0, None)


def has_truth(sample: Any) -> bool:
    """Return whether a data sample has annotations."""
    if "gt_instances" in sample:
        return len(sample.gt_instances) > 0
    return "gt_sem_seg" in sample or "gt_label" in sample


def write_video(path: str | Path, frames: Iterable[np.ndarray], rate: float) -> None:
    """Write frames ``[H, W, 3]`` (RGB, uint8) as MPEG-4, at ``rate`` frames per second. Without a frame, or
    after an error, nothing is written.

    Raises:
        OSError: OpenCV cannot write the file.
    """
    writer, path = None, Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_stem(f".{path.stem}.partial")
    try:
        for frame in frames:
            if writer is None:
                writer = cv2.VideoWriter(str(partial), cv2.VideoWriter.fourcc(*"mp4v"), rate, frame.shape[1::-1])
            if not writer.isOpened():
                raise OSError(
                    f"video {path} cannot be written: its folder is not writable, or OpenCV has no MPEG-4 encoder"
                )
            writer.write(np.ascontiguousarray(frame[..., ::-1]))
    except BaseException:
        if writer is not None:
            writer.release()
        partial.unlink(missing_ok=True)
        raise
    if writer is not None:
        writer.release()
        partial.replace(path)


def free_path(target: Path, taken: set[Path]) -> Path:
    """Return the first of ``name.png``, ``name_2.png``, … that is not in ``taken``, and add it there."""
    number, free = 1, target
    while free.resolve() in taken:
        number += 1
        free = target.with_stem(f"{target.stem}_{number}")
    taken.add(free.resolve())
    return free


def _panel(
    picture: np.ndarray, sample: Any, kind: str, classes: Classes, threshold: float, title: str | None
) -> np.ndarray:
    canvas = _canvas(picture)
    legend: Entries | None = None
    if f"{kind}_instances" in sample:
        _draw_instances(canvas, getattr(sample, f"{kind}_instances"), classes, threshold)
    elif f"{kind}_sem_seg" in sample:
        legend = _draw_segmentation(canvas, getattr(sample, f"{kind}_sem_seg").data, classes)
    elif f"{kind}_label" in sample:
        legend = _class_legend(sample, kind, classes)
    else:
        raise ValueError(
            f"a data sample with {sorted(sample.keys())} has no {kind}_instances, {kind}_sem_seg or {kind}_label"
        )
    if legend is None and title is None:
        return canvas.picture
    return np.vstack([canvas.picture, _strip(canvas, [*([(None, title)] if title else []), *(legend or [])])])


def enlarge(picture: np.ndarray, longer_side: int) -> np.ndarray:
    """Return a copy of a picture, enlarged if its longer side has fewer pixels."""
    height, width = picture.shape[:2]
    scale = longer_side / max(height, width)
    if scale <= 1:
        return picture.copy()
    # Even sides, which video encoders need.
    size = 2 * max(1, round(width * scale / 2)), 2 * max(1, round(height * scale / 2))
    return cv2.resize(picture, size, interpolation=cv2.INTER_CUBIC)


def _canvas(picture: np.ndarray) -> _Canvas:
    enlarged = enlarge(picture, LONGER_SIDE)
    height, width = enlarged.shape[:2]
    scale = max(height, width) / max(picture.shape[:2])
    return _Canvas(enlarged, scale, _font(max(13, round((height * width) ** 0.5 / 48))))


@lru_cache
def _font(size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(Path(matplotlib.get_data_path(), "fonts", "ttf", "DejaVuSans.ttf"), size)


# --- objects -----------------------------------------------------------------------------------------------------------------


def _draw_instances(canvas: _Canvas, instances: Any, classes: Classes, threshold: float) -> None:
    if "scores" in instances:
        instances = instances[instances.scores >= threshold]
    boxes = np.asarray(getattr(instances.bboxes, "tensor", instances.bboxes), np.float32).reshape(-1, 4)
    height, width = canvas.picture.shape[:2]
    boxes = np.clip((boxes * canvas.scale).round(), 0, [width - 1, height - 1] * 2).astype(int)
    labels = [int(label) for label in instances.labels]
    scores = [float(score) for score in instances.scores] if "scores" in instances else [None] * len(labels)
    masks = _masks(instances) if "masks" in instances else [None] * len(labels)
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    covered = np.zeros((height, width), np.uint8)  # by objects; labels avoid these pixels
    for i in np.argsort(-areas):  # small objects over large ones
        colour, (left, top, right, bottom) = classes.colour(labels[i]), boxes[i].tolist()
        if masks[i] is not None:
            mask = _resize_mask(masks[i], canvas)
            _fill(canvas, mask, colour)
            covered |= mask
        else:
            covered[top : bottom + 1, left : right + 1] = 1
        cv2.rectangle(canvas.picture, (left, top), (right, bottom), colour, canvas.line, cv2.LINE_AA)
    labelled = [
        (boxes[i].tolist(), classes.colour(labels[i]), _label(classes.name(labels[i]), scores[i]))
        for i in np.argsort(areas)
    ]
    _write_labels(canvas, labelled, covered)


def _masks(instances: Any) -> Sequence[np.ndarray]:
    masks = instances.masks
    return np.asarray(masks.to_ndarray() if hasattr(masks, "to_ndarray") else masks).astype(np.uint8)


def _label(name: str, score: float | None) -> str:
    return name if score is None else f"{name} {score:.2f}"


def _resize_mask(mask: np.ndarray, canvas: _Canvas) -> np.ndarray:
    """Return the mask at the size of the canvas, 0 or 1, with smooth edges."""
    height, width = canvas.picture.shape[:2]
    soft = cv2.resize(mask * np.uint8(255), (width, height), interpolation=cv2.INTER_LINEAR)
    if canvas.scale > 1:
        soft = cv2.GaussianBlur(soft, (0, 0), canvas.scale * 0.8)
    return (soft > 127).astype(np.uint8)


def _fill(canvas: _Canvas, mask: np.ndarray, colour: Colour) -> None:
    """Draw a light fill and the outline."""
    inside = mask.astype(bool)
    mixed = canvas.picture[inside] * (1 - _FILL) + np.array(colour) * _FILL
    canvas.picture[inside] = mixed.round().astype(np.uint8)
    contours, _ = cv2.findContours(mask, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_NONE)
    cv2.drawContours(canvas.picture, contours, -1, colour, canvas.line, cv2.LINE_AA)


def _write_labels(canvas: _Canvas, labelled: Sequence[tuple[Sequence[int], Colour, str]], covered: np.ndarray) -> None:
    """Write each label where it covers least of the objects and of the earlier labels."""
    image = Image.fromarray(canvas.picture)
    draw = ImageDraw.Draw(image)
    pad, line = max(2, canvas.font.size // 5), canvas.line
    ascent, descent = canvas.font.getmetrics()
    height, width = covered.shape
    taken = covered.astype(np.uint32)
    for box, colour, text in labelled:
        size = round(canvas.font.getlength(text)) + 2 * pad, ascent + descent + pad
        places = _places(box, size, (width, height), line)
        costs = [taken[top:bottom, left:right].sum(dtype=np.int64) for left, top, right, bottom in places]
        place = places[int(np.argmin(costs))]
        left, top, right, bottom = place
        taken[top:bottom, left:right] += 100
        draw.rounded_rectangle((left, top, right - 1, bottom - 1), radius=pad, fill=colour)
        draw.text((left + pad, top + pad // 2), text, font=canvas.font, fill=_ink(colour))
    canvas.picture[:] = np.asarray(image)


def _places(box: Sequence[int], size: tuple[int, int], limits: tuple[int, int], margin: int) -> list[Box]:
    """Return places for a label of this width and height, the best first: around the box, then in its corners."""
    (left, top, right, bottom), (width, height) = box, size
    above, below, before, behind = top - height - margin, bottom + margin + 1, left - width - margin, right + margin + 1
    around = [(left, above), (left, below), (right - width, above), (right - width, below)]
    around += [(behind, top), (before, top), (behind, bottom - height), (before, bottom - height)]
    corners = [(left + margin, top + margin), (right - width - margin, top + margin)]
    corners += [(left + margin, bottom - height - margin), (right - width - margin, bottom - height - margin)]
    places = []
    for x, y in [*around, *corners]:
        inside = x + width > 0 and 0 <= y <= limits[1] - height
        x = min(max(x, 0), max(limits[0] - width, 0))
        if inside or (x, y) in corners:
            y = min(max(y, 0), max(limits[1] - height, 0))
            places.append((x, y, x + width, y + height))
    return places or [(0, 0, width, height)]


def _ink(colour: Colour) -> Colour:
    """Return black or white, whichever is easier to read on a colour."""
    return _BLACK if np.dot(colour, (0.299, 0.587, 0.114)) > 140 else _WHITE


# --- whole pictures ----------------------------------------------------------------------------------------------------------


def _draw_segmentation(canvas: _Canvas, labels: Any, classes: Classes) -> Entries:
    """Fill every class but one called background; returns a legend, the largest share first."""
    labels = np.asarray(labels).squeeze()
    legend: Entries = []
    found, counts = np.unique(labels[labels != 255], return_counts=True)  # 255: not annotated
    for i in np.argsort(-counts):
        label = int(found[i])
        if classes.name(label) == "background":
            continue
        colour = classes.colour(label)
        _fill(canvas, _resize_mask((labels == label).astype(np.uint8), canvas), colour)
        legend.append((colour, f"{classes.name(label)} {counts[i] / labels.size:.0%}"))
    return legend


def _class_legend(sample: Any, kind: str, classes: Classes) -> Entries:
    if kind == "gt" or "pred_score" not in sample:
        labels = np.asarray(getattr(sample, f"{kind}_label")).reshape(-1)
        return [(classes.colour(int(label)), classes.name(int(label))) for label in labels]
    scores = np.asarray(sample.pred_score, np.float32)
    best = [int(label) for label in np.argsort(-scores)[:_LISTED]]
    return [(classes.colour(label), _label(classes.name(label), float(scores[label]))) for label in best]


def _strip(canvas: _Canvas, entries: Entries) -> np.ndarray:
    """Return a line of text as wide as the picture. Entries that do not fit are left out, beginning with the last."""
    size, width = canvas.font.size, canvas.picture.shape[1]
    image = Image.new("RGB", (width, 2 * round(size)), _WHITE)
    draw = ImageDraw.Draw(image)
    x = size // 2
    for colour, text in entries:
        swatch = 0 if colour is None else size
        if x + swatch + canvas.font.getlength(text) > width:
            break
        if colour is not None:
            draw.rectangle((x, size // 2 + 1, x + round(0.7 * size), size // 2 + round(0.9 * size)), fill=colour)
        draw.text((x + swatch, size // 3), text, font=canvas.font, fill=_GREY if colour is None else _BLACK)
        x += swatch + round(canvas.font.getlength(text)) + size
    return np.asarray(image)
