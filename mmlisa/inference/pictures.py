"""Predictions of trained models and exported files, drawn and as data."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import mmcv
import numpy as np
from mmengine.structures import BaseDataElement
from tqdm import tqdm

from mmlisa import runtime
from mmlisa.classes import Classes
from mmlisa.errors import UserError
from mmlisa.inference.predictor import Predictor, fill_sample
from mmlisa.runtime import IMAGE_SUFFIXES, Prediction
from mmlisa.visualization.overlays import contact_sheet, draw_prediction, free_path

VIDEO_SUFFIXES = (".mp4", ".avi", ".mov", ".mkv", ".webm", ".m4v", ".mpg", ".mpeg")


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
) -> tuple[list[dict[str, Any]], list[str]]:
    """Write each input with its boxes, masks, labels and scores (or its segmentation, or its class) into ``out_dir``.

    A line is printed for each. An input that cannot be read does not end the rest; another error does.

    Args:
        model: a model; see :func:`mmlisa.load`.
        images: images, or folders of them; for a video classifier, videos.
        out_dir: gets ``<stem>.png`` per input; inputs of one stem are numbered.
        score_threshold: lowest score of a detection.
        **options: more for ``model.predict``, such as ``tile`` of an exported file.

    Returns:
        A dict with ``source``, ``picture`` and the entry of :func:`to_data` per input, and a line with the reason per input that
        could not be read.

    Raises:
        FileNotFoundError: a folder without inputs.
    """
    if isinstance(model, runtime.Model) and model.task == "video":
        raise UserError(f"{model.path!r} classifies clips: call run() with an array of shape {model.shape}")
    classes = Classes(getattr(model, "metainfo", {"classes": model.classes}))
    takes_clips = getattr(model, "takes_clips", False)
    paths = find_inputs(images, takes_clips)
    out_dir.mkdir(parents=True, exist_ok=True)
    taken = {path.resolve() for path in paths}  # a picture never replaces an input
    done, failed = [], []
    for path in tqdm(paths, "predictions", leave=False, disable=None):
        target = free_path(out_dir / f"{path.stem}.png", taken)
        try:
            if path.suffix.lower() in VIDEO_SUFFIXES and not takes_clips:
                raise UserError(f"the model takes images, which `ffmpeg -i {path} frames/%05d.jpg` makes of a video")
            picture = contact_sheet(model.read(path)["inputs"][0]) if takes_clips else runtime.read_image(path)
            found = model.predict(path, score_threshold, **options)
            drawing = draw_prediction(picture, fill_sample(BaseDataElement(), found), classes, score_threshold=0.0)
            mmcv.imwrite(drawing[..., ::-1], str(target))
        except (ValueError, OSError, cv2.error) as error:  # errors of files; those of models and memory are raised
            failed.append(f"{path} cannot be processed: {type(error).__name__}: {error}")
        else:
            data = to_data(found, classes)
            tqdm.write(f"{path} -> {target}: {summarise(data)}")
            done.append({"source": str(path), "picture": str(target), **data})
    return done, failed


def find_inputs(names: Sequence[str], are_videos: bool = False) -> list[Path]:
    """Return each input once, with those in folders; a folder without one is a FileNotFoundError."""
    suffixes = VIDEO_SUFFIXES if are_videos else IMAGE_SUFFIXES
    return list(dict.fromkeys(path for name in names for path in _expand(Path(name), suffixes)))


def _expand(path: Path, suffixes: Sequence[str]) -> list[Path]:
    """Return the inputs in a folder and its subfolders, without hidden files; any other path is an input."""
    if not path.is_dir():
        return [path]
    found = sorted(p for p in path.rglob("[!.]*") if p.suffix.lower() in suffixes)
    if not found:
        raise FileNotFoundError(f"folder {path} holds no file of these: {', '.join(suffixes)}")
    return found
