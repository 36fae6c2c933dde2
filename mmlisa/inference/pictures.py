"""Predictions of trained models and exported files on images and videos, drawn and as data."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import mmcv
import numpy as np
from mmengine.structures import BaseDataElement
from tqdm import tqdm

from mmlisa import runtime
from mmlisa.classes import Classes
from mmlisa.errors import UserError
from mmlisa.inference.predictor import Predictor, fill_sample
from mmlisa.runtime import IMAGE_SUFFIXES, VIDEO_SUFFIXES, Prediction
from mmlisa.visualization.overlays import draw_prediction, free_path, write_video


class Result(NamedTuple):
    """Result for one input."""

    source: Path
    target: Path | None  # the file written; None if the input could not be read
    summary: str  # a line with the prediction, or with the reason why the input could not be read
    result: dict[str, Any] | list[dict[str, Any]] | None = None  # see to_data; a list of a video's frames


def to_data(found: Prediction, classes: Classes) -> dict[str, Any]:
    """Return a prediction as plain data, in pixels of the input.

    Returns:
        One of these, the best first::

            {"instances": [{"category": "cat", "category_id": 0, "score": 0.98, "bbox": [x, y, width, height],
                            "segmentation": COCO's run-length encoding, where there are masks}, …]}
            {"segments": [{"category": "cat", "category_id": 0, "share": 0.25 of the pixels}, …]}
            {"scores": [{"category": "cat", "category_id": 0, "score": 0.98}, …]}, of at most five classes
    """

    def named(label: int, **entries: Any) -> dict[str, Any]:
        return {"category": classes.name(int(label)), "category_id": int(label), **entries}

    if found.boxes is not None:
        instances = []
        masks = [None] * len(found.boxes) if found.masks is None else found.masks
        for label, score, box, mask in zip(found.labels, found.scores, found.boxes.tolist(), masks, strict=True):
            x0, y0, x1, y1 = box
            bbox = [round(v, 2) for v in (x0, y0, x1 - x0, y1 - y0)]
            instances.append(named(label, score=round(float(score), 4), bbox=bbox))
            if mask is not None:  # of tiles, run lengths already
                encoded = mask if isinstance(mask, dict) else runtime.encode_mask([(0, 0, mask)], mask.shape)
                instances[-1]["segmentation"] = encoded
        return {"instances": instances}
    if found.segmentation is not None:
        labels, counts = np.unique(found.segmentation, return_counts=True)
        order = np.argsort(-counts, kind="stable")
        return {"segments": [named(labels[i], share=round(float(counts[i] / counts.sum()), 4)) for i in order]}
    best = np.argsort(-found.probabilities, kind="stable")[:5]
    return {"scores": [named(i, score=round(float(found.probabilities[i]), 4)) for i in best]}


def summarise(result: dict[str, Any]) -> str:
    """Return one line for the result of :func:`to_data`: objects of each class, shares of the pixels, or the class."""
    if "instances" in result:
        counts = Counter(instance["category"] for instance in result["instances"])
        return ", ".join(f"{n} {name}" for name, n in counts.most_common()) or "nothing found"
    if "segments" in result:
        return ", ".join(f"{segment['category']} {segment['share']:.0%}" for segment in result["segments"][:8])
    best = result["scores"][0]
    return f"{best['category']} ({best['score']:.2f})"


def predict_pictures(
    model: Predictor | runtime.Model, images: Sequence[str], out_dir: Path, score_threshold: float = 0.3, **options: Any
) -> Iterator[Result]:
    """Write each input with its boxes, masks, labels and scores (or its segmentation, or its class) into ``out_dir``.

    Args:
        model: a model; see :func:`mmlisa.load`.
        images: images, videos, or folders of them; for a video classifier, videos, or folders of them or of a video's frames.
        out_dir: gets ``<stem>.png`` per image and ``<stem>.mp4`` per video; inputs of one stem are numbered.
        score_threshold: lowest score of a detection.
        **options: more for ``model.predict``, such as ``tile`` of an exported file.

    Yields:
        One :class:`Result` per input, as it is done. An input that cannot be read does not end the rest; another error does.

    Raises:
        FileNotFoundError: a folder without images.
    """
    classes = Classes(getattr(model, "metainfo", {"classes": model.classes}))
    takes_clips = getattr(model, "takes_clips", False)
    paths = list(dict.fromkeys(path for name in images for path in _expand(Path(name), takes_clips)))
    out_dir.mkdir(parents=True, exist_ok=True)
    taken = {path.resolve() for path in paths}  # a picture never replaces an input

    def draw(image: Any, picture: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
        found = model.predict(image, score_threshold, **options)
        drawing = draw_prediction(picture, fill_sample(BaseDataElement(), found), classes, score_threshold=0.0)
        return drawing, to_data(found, classes)

    for path in tqdm(paths, "predictions", leave=False, disable=None):
        is_video = path.suffix.lower() in VIDEO_SUFFIXES and not takes_clips
        stem = path.name if path.is_dir() else path.stem
        target = free_path(out_dir / f"{stem}{'.mp4' if is_video else '.png'}", taken)
        try:
            if is_video:
                result = _draw_video(draw, path, target)
                summary = f"{len(result)} frames; in the last: {summarise(result[-1])}"
            else:
                if takes_clips:
                    from mmlisa.visualization.samples import contact_sheet  # imports torchvision

                    picture = contact_sheet(model.read(path)["inputs"][0])
                else:
                    picture = runtime.read_image(path)
                drawing, result = draw(path, picture)
                mmcv.imwrite(drawing[..., ::-1], str(target))
                summary = summarise(result)
            yield Result(path, target, summary, result)
        except (ValueError, OSError, cv2.error) as error:  # errors of files; those of models and memory are raised
            yield Result(path, None, f"{path} cannot be processed: {type(error).__name__}: {error}")


def _draw_video(draw: Any, path: Path, target: Path) -> list[dict[str, Any]]:
    video, results = mmcv.VideoReader(str(path)), []

    def drawings() -> Iterator[np.ndarray]:
        for frame in tqdm(video, path.name, len(video), leave=False, unit="frame", disable=None):
            picture = np.ascontiguousarray(frame[..., ::-1])
            drawing, result = draw(picture, picture)
            results.append(result)
            yield drawing

    write_video(target, drawings(), video.fps or 25.0)
    if not results:
        raise UserError(f"no frame can be read; `ffmpeg -i {path} frames/%05d.jpg` makes images")
    return results


def _expand(path: Path, takes_clips: bool) -> list[Path]:
    """Return the inputs in a folder and its subfolders, without hidden files; any other path is an input."""
    suffixes = VIDEO_SUFFIXES if takes_clips else (*IMAGE_SUFFIXES, *VIDEO_SUFFIXES)
    if not path.is_dir():
        return [path]
    found = sorted(p for p in path.rglob("[!.]*") if p.suffix.lower() in suffixes)
    if not found and not takes_clips:
        raise FileNotFoundError(f"folder {path} holds no image ({', '.join(suffixes)})")
    return found or [path]  # the folder holds the frames of a video
