"""Predictions of trained models and exported files, drawn and as data."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import cv2
import mmcv
import numpy as np
from mmengine.structures import BaseDataElement
from tqdm import tqdm

from mmlisa import runtime
from mmlisa.classes import Classes
from mmlisa.errors import UserError
from mmlisa.inference.films import VIDEO_SUFFIXES, Film, is_film, open_film, predict_film, public_name
from mmlisa.inference.predictor import Predictor, fill_sample
from mmlisa.runtime import IMAGE_SUFFIXES, Prediction
from mmlisa.visualization.overlays import contact_sheet, draw_prediction, free_path


def to_data(found: Prediction, classes: Classes) -> dict[str, Any]:
    """Return a prediction as plain data, in pixels of the input.

    Returns:
        One of these, the best first::

            {"instances": [{"category": "cat", "category_id": 0, "score": 0.98, "bbox": [x, y, width, height],
                            "id": of an object that is followed, or -1,
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
            if found.ids is not None:
                instances[-1]["id"] = int(found.ids[len(instances) - 1])
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
    model: Predictor | runtime.Model,
    images: Sequence[str],
    out_dir: Path,
    score_threshold: float = 0.3,
    *,
    every: int = 1,
    track: bool = False,
    keep_frames: bool = True,
    **options: Any,
) -> tuple[list[dict[str, Any]], list[str]]:
    """Draw the predictions on images and films, print one line for each, and return the predictions.

    Args:
        model: a model; see :func:`mmlisa.load`.
        images: images, films, and folders of both; cameras by their numbers, streams by their addresses; for a video classifier,
            videos.
        out_dir: gets ``<stem>.png`` per image and ``<stem>.mp4`` per film; inputs of one stem are numbered.
        score_threshold: lowest score of a detection.
        every, track: see :func:`open_film` and :func:`predict_film`.
        keep_frames: return the predictions of each frame of a film.
        **options: more for ``model.predict``, such as ``tile`` of an exported file.

    Returns:
        A dict with ``source``, ``picture``, the size of an image and the entry of :func:`to_data` per input, that of a film with
        ``frames``; and a line with the reason per input that could not be read.

    Raises:
        FileNotFoundError: a folder without inputs.
        UserError: an exported classifier of clips.
    """
    if isinstance(model, runtime.Model) and model.task == "video":
        raise UserError(f"{model.path!r} classifies clips: call run() with an array of shape {model.shape}")
    classes = Classes(getattr(model, "metainfo", {"classes": model.classes}))
    takes_clips = getattr(model, "takes_clips", False)
    sources = find_inputs(images, takes_clips)
    out_dir.mkdir(parents=True, exist_ok=True)
    taken = {Path(source).resolve() for source in sources}  # a picture never replaces an input
    done, failed = [], []
    for source in tqdm(sources, "predictions", leave=False, disable=None):
        film = is_film(source) and not takes_clips
        target = free_path(out_dir / f"{_stem(source)}{'.mp4' if film else '.png'}", taken)
        try:
            if film:
                opened = open_film(str(source), every)
                frames = predict_film(model, opened, target, classes, score_threshold, track=track, **options)
                data, line = _collect(frames, opened, classes, keep_frames)
            else:
                data = _predict_picture(model, source, target, classes, score_threshold, **options)
                line = summarise(data)
        except (ValueError, OSError, cv2.error) as error:  # errors of files; those of models and memory are raised
            failed.append(f"{public_name(source)} cannot be processed: {type(error).__name__}: {error}")
        else:
            tqdm.write(f"{public_name(source)} -> {target}: {line}")
            done.append({"source": public_name(source), "picture": str(target), **data})
    return done, failed


def _predict_picture(
    model: Predictor | runtime.Model, path: Path, target: Path, classes: Classes, threshold: float, **options: Any
) -> dict[str, Any]:
    takes_clips = getattr(model, "takes_clips", False)
    picture = contact_sheet(model.read(path)["inputs"][0]) if takes_clips else runtime.read_image(path)
    found = model.predict(path, threshold, **options)
    drawing = draw_prediction(picture, fill_sample(BaseDataElement(), found), classes, score_threshold=0.0)
    mmcv.imwrite(drawing[..., ::-1], str(target))
    height, width = picture.shape[:2]
    size = {} if takes_clips else {"height": height, "width": width}
    return {**size, **to_data(found, classes)}


def _collect(
    predictions: Iterator[tuple[float, Prediction]], film: Film, classes: Classes, keep_frames: bool
) -> tuple[dict[str, Any], str]:
    """Return the frames of a film as data, and a line; Ctrl-C ends a camera or a stream, and not the command."""
    frames, followed = [], set()
    count, begin = 0, perf_counter()
    try:
        for second, found in predictions:
            count += 1
            if found.ids is not None:
                followed.update(found.ids[found.ids >= 0].tolist())
            if keep_frames:
                frames.append({"second": round(second, 3), **to_data(found, classes)})
    except KeyboardInterrupt:
        if film.length or not count:
            raise
    line = f"{count} frames, {count / (perf_counter() - begin):.1f} a second, without sound"
    if film.length and count < film.length:
        line += f"; the file states {film.length}"
    if followed:
        line += f"; {len(followed)} objects followed"
    return {"frames": frames}, line


def _stem(source: str | Path) -> str:
    """Return the stem of a file, or a name for a camera or a stream."""
    if Path(source).exists():
        return Path(source).stem
    name = f"camera_{source}" if str(source).isdecimal() else public_name(source)
    return re.sub(r"\W+", "_", name).strip("_")


def find_inputs(names: Sequence[str], are_videos: bool = False) -> list[Path | str]:
    """Return each input once, with those in folders; a folder without one is a FileNotFoundError.

    Cameras and streams stay texts.
    """
    suffixes = VIDEO_SUFFIXES if are_videos else (*IMAGE_SUFFIXES, *VIDEO_SUFFIXES)
    found = (source for name in names for source in _expand(name, suffixes))
    return list(dict.fromkeys(found))


def _expand(name: str, suffixes: Sequence[str]) -> list[Path | str]:
    """Return the inputs in a folder and its subfolders, without hidden files; any other name is an input."""
    path = Path(name)
    if not path.is_dir():
        return [path if path.exists() or not is_film(name) else name]
    found = sorted(p for p in path.rglob("[!.]*") if p.suffix.lower() in suffixes)
    if not found:
        raise FileNotFoundError(f"folder {path} holds no file of these: {', '.join(suffixes)}")
    return found
