"""Predictions on films and cameras: each frame is drawn and written as it comes, with supervision's video tools."""

import math
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from mmengine.structures import BaseDataElement
from tqdm import tqdm

from mmlisa import runtime
from mmlisa.classes import Classes
from mmlisa.errors import UserError
from mmlisa.inference.predictor import Predictor, fill_sample
from mmlisa.runtime import InputError, Prediction
from mmlisa.visualization.overlays import draw_prediction

VIDEO_SUFFIXES = (".mp4", ".avi", ".mov", ".mkv", ".webm", ".m4v", ".mpg", ".mpeg", ".ts", ".gif")
_RATE = 25.0  # frames a second of a camera that does not say


def is_film(source: str | Path) -> bool:
    """Return whether a source is a film by its name, the number of a camera, or the address of a stream."""
    name = str(source)
    if Path(name).suffix.lower() in VIDEO_SUFFIXES:
        return True
    return not Path(name).exists() and (name.isdecimal() or "://" in name)


def public_name(source: str | Path) -> str:
    """Return a source without the name and the password in an address."""
    return re.sub(r"//[^/@]*@", "//", str(source))


class Film(NamedTuple):
    """An opened film; a camera and a stream have no length."""

    name: str
    frames: Iterator[np.ndarray]  # [H, W, 3], RGB, uint8
    rate: float  # frames a second, counted after `every`
    length: int | None  # number of frames that the file states, counted after `every`


def open_film(source: str, every: int = 1) -> Film:
    """Open a film, a camera by its number, or a stream by its address, and take every Nth frame.

    Raises:
        InputError: it cannot be opened.
    """
    import supervision as sv

    place: Any = int(source) if source.isdecimal() and not Path(source).exists() else source
    try:
        info = sv.VideoInfo.from_video_path(place)
    except Exception as error:  # supervision raises this class
        raise InputError(f"film {public_name(source)!r} cannot be opened: it is missing, damaged or in use") from error
    frames = (frame[..., ::-1] for frame in sv.get_video_frames_generator(place, stride=every))
    rate = info.fps if info.fps > 0 else _RATE
    stated = info.total_frames or 0
    length = math.ceil(stated / every) if stated > 0 else None
    return Film(public_name(source), frames, rate / every, length)


class Tracker:
    """Numbers objects over the frames of a film, with ByteTrack (Zhang et al.) of the package trackers.

    Args:
        rate: frames a second.
        threshold: lowest score of an object that is followed.

    Raises:
        UserError: the package is missing.
    """

    def __init__(self, rate: float, threshold: float) -> None:
        if not find_spec("trackers"):
            raise UserError("--track needs the package trackers, which is not installed: pip install 'mmlisa[track]'")
        from trackers import ByteTrackTracker

        thresholds = dict(track_activation_threshold=threshold, high_conf_det_threshold=threshold)
        self.tracker = ByteTrackTracker(frame_rate=rate, **thresholds)

    def number(self, found: Prediction) -> Prediction:
        """Set ``ids`` of a detector's prediction; -1 for an object that is not followed (yet). Others are a UserError."""
        import supervision as sv

        if found.boxes is None:
            raise UserError("--track: only detectors find objects; leave it out")
        places = np.arange(len(found.boxes))
        detections = sv.Detections(found.boxes, confidence=found.scores, class_id=found.labels, data={"place": places})
        followed = self.tracker.update(detections)
        found.ids = np.full(len(places), -1)
        if len(followed):
            found.ids[followed.data["place"]] = followed.tracker_id
        return found


def predict_film(
    model: Predictor | runtime.Model,
    film: Film,
    target: Path,
    classes: Classes,
    score_threshold: float = 0.3,
    *,
    track: bool = False,
    **options: Any,
) -> Iterator[tuple[float, Prediction]]:
    """Predict on a film, write it with its predictions and without its sound, and yield the second and the prediction of a frame.

    Args:
        model, score_threshold: see :func:`mmlisa.load` and its ``predict``.
        film: see :func:`open_film`.
        target: an ``.mp4`` file.
        classes: names and colours.
        track: number the objects of a detector.
        **options: more for ``predict``.

    Raises:
        InputError: no frame can be read.
        UserError: ``track`` without the package trackers, or with a model that is not a detector.
    """
    import supervision as sv

    tracker = Tracker(film.rate, score_threshold) if track else None
    sink, begin = None, perf_counter()
    bar = tqdm(film.frames, film.name, film.length, unit="frame", leave=False, disable=None)
    try:
        for index, frame in enumerate(bar):
            found = model.predict(np.ascontiguousarray(frame), score_threshold, **options)
            if tracker:
                found = tracker.number(found)
            sample = fill_sample(BaseDataElement(), found)
            drawing = draw_prediction(frame, sample, classes, score_threshold=0.0, side=max(frame.shape[:2]))
            if sink is None:
                height, width = drawing.shape[:2]
                sink = sv.VideoSink(str(target), sv.VideoInfo(width, height, film.rate)).__enter__()
            sink.write_frame(np.ascontiguousarray(drawing[..., ::-1]))
            second = index / film.rate if film.length else perf_counter() - begin
            yield second, found
    finally:
        if sink is not None:
            sink.__exit__(None, None, None)
    if sink is None:
        raise InputError(f"film {film.name!r} has no frame that can be read")
