"""Videos listed in a text file, and transforms from a path to the tensor of its clips, with any image transforms in between."""

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from mmcv.transforms import BaseTransform
from mmengine.dataset import Compose
from mmengine.logging import print_log
from mmpretrain.datasets import BaseDataset, PackInputs

from mmlisa.errors import UserError
from mmlisa.registry import DATASETS, TRANSFORMS

# Skipping fewer frames than this is faster than a seek, which goes back to a key frame first.
_SEEK_FROM = 32


@DATASETS.register_module()
class VideoDataset(BaseDataset):
    """mmpretrain's ``BaseDataset`` of videos, one per line of ``ann_file``: path, number of frames, label.

    The path may contain spaces and is relative to ``data_prefix`` under ``data_root``. Labels count from 0. The pipeline starts
    with :class:`LoadClips`. An invalid line is quoted in a UserError.
    """

    def load_data_list(self) -> list[dict[str, Any]]:
        videos = []
        for line in filter(str.strip, Path(self.ann_file).read_text(encoding="utf-8").splitlines()):
            path, *numbers = line.rsplit(maxsplit=2)
            if len(numbers) != 2 or not all(number.isdecimal() for number in numbers) or int(numbers[0]) < 1:
                raise UserError(f"{self.ann_file}: {line!r} is not 'path frames label' with at least 1 frame")
            frames, label = map(int, numbers)
            if self.CLASSES is not None and label >= len(self.CLASSES):
                raise UserError(f"{self.ann_file}: {line!r} has a label of more than {len(self.CLASSES)} classes")
            videos.append({"img_path": str(Path(self.img_prefix, path)), "num_frames": frames, "gt_label": label})
        return videos


@TRANSFORMS.register_module()
class LoadClips(BaseTransform):
    """Sample clips of a video file and decode their frames.

    Reads ``img_path`` and, if it is given, ``num_frames``. Adds ``clips``, a list of V lists of T frames
    ``[H, W, 3]`` (BGR, uint8). A video shorter than a clip repeats frames.

    Args:
        length: frames T of a clip.
        stride: distance between the frames of dense sampling; None takes a frame of each of T equal segments (uniform sampling).
        num_clips: clips V; uniform sampling has one.
        random: draw new clips each time, for training; otherwise the clips are always the same. The training logs the name of a
            damaged video and takes another one; without ``random``, a damaged video is a UserError.
    """

    def __init__(self, length: int, *, stride: int | None = None, num_clips: int = 1, random: bool = False) -> None:
        if stride is None and num_clips != 1:
            raise UserError(f"num_clips={num_clips}; uniform sampling (stride=None) has one clip")
        self.length, self.stride, self.num_clips, self.random = length, stride, num_clips, random

    def transform(self, results: dict[str, Any]) -> dict[str, Any] | None:
        path = results["img_path"]
        try:
            total = results.get("num_frames") or int(_open(path).get(cv2.CAP_PROP_FRAME_COUNT))
            if total < 1:
                raise UserError(f"video {path} has no frames")
            if self.stride is None:
                positions = uniform_positions(total, self.length, self.random)
            else:
                positions = dense_positions(total, self.length, self.stride, self.num_clips, self.random)
            frames = read_frames(path, positions.ravel())
        except UserError as error:
            if not self.random:
                raise
            print_log(f"skipped: {error}", logger="current", level=30)
            return None
        return {**results, "clips": [[frames[position] for position in clip] for clip in positions.tolist()]}


@TRANSFORMS.register_module()
class PerFrame(BaseTransform):
    """Apply image transforms to the frames of ``clips``, with the same random choices for all frames of a clip.

    The random states of Python, NumPy and PyTorch are restored before each frame, so this holds for every transform. mmcv's
    ``TransformBroadcaster`` shares only the choices that a transform declares, and RandomErasing does not declare its noise.
    """

    def __init__(self, transforms: list) -> None:
        self.pipeline = Compose(transforms)

    def transform(self, results: dict[str, Any]) -> dict[str, Any]:
        clips, changed = [], {}
        for clip in results["clips"]:
            state = random.getstate(), np.random.get_state(), torch.get_rng_state()
            frames = []
            for frame in clip:
                random.setstate(state[0])
                np.random.set_state(state[1])
                torch.set_rng_state(state[2])
                shape = frame.shape[:2]
                changed = self.pipeline({**results, "img": frame, "img_shape": shape, "ori_shape": shape})
                frames.append(changed.pop("img"))
            clips.append(frames)
        return {**changed, "clips": clips}


@TRANSFORMS.register_module()
class PackClips(PackInputs):
    """mmpretrain's PackInputs for ``clips``: ``inputs`` is ``[V, 3, T, H, W]``, uint8, with the channel order of the frames."""

    def transform(self, results: dict[str, Any]) -> dict[str, Any]:
        clips = np.stack([np.stack(clip) for clip in results["clips"]])
        return super().transform({**results, "img": np.ascontiguousarray(np.moveaxis(clips, -1, 1))})


def dense_positions(total: int, length: int, stride: int, clips: int, random: bool) -> np.ndarray:
    """Return clips of every ``stride``-th frame (Wang et al., "Non-local neural networks"): ``[clips, length]``.

    The clips start at random, or evenly from the first to the last possible frame, a single clip in the middle. The last frame
    of a short video is repeated.
    """
    slack = max(total - (length - 1) * stride - 1, 0)
    if random:
        starts = np.random.randint(slack + 1, size=clips)
    elif clips == 1:
        starts = np.array([slack // 2])
    else:
        starts = np.arange(clips) * slack // (clips - 1)
    return np.minimum(starts[:, None] + np.arange(length) * stride, total - 1)


def uniform_positions(total: int, length: int, random: bool) -> np.ndarray:
    """Return a random frame, or the middle one, of each of ``length`` equal segments (Wang et al., "Temporal segment networks").

    The result is ``[1, length]``. A video with fewer frames than segments repeats some.
    """
    edges = np.arange(length + 1) * total // length
    first, end = edges[:-1], edges[1:]
    if random:
        return np.random.randint(first, np.maximum(end, first + 1))[None]
    return ((first + end) // 2)[None]


def read_frames(path: str | Path, positions: Iterable[int]) -> dict[int, np.ndarray]:
    """Return the frames at ``positions`` (from 0, in any order), each ``[H, W, 3]``, BGR, uint8; no other frame is decoded.

    A missing video is a FileNotFoundError, a frame that is missing or damaged a UserError.
    """
    capture, following, frames = _open(path), 0, {}
    for position in sorted({int(position) for position in positions}):
        if position - following >= _SEEK_FROM:
            capture.set(cv2.CAP_PROP_POS_FRAMES, position)
            following = position
        while following < position and capture.grab():
            following += 1
        decoded, frame = capture.read()
        if not decoded:
            raise UserError(f"video {path} ends early, or is damaged: its frame {position} cannot be decoded")
        frames[position], following = frame, position + 1
    return frames


def _open(path: str | Path) -> cv2.VideoCapture:
    if not Path(path).is_file():
        raise FileNotFoundError(f"video {path} does not exist, or is a folder")
    capture = cv2.VideoCapture(str(path))
    if not capture.isOpened():
        raise UserError(f"video {path} cannot be opened: it is empty, damaged or not a video")
    return capture
