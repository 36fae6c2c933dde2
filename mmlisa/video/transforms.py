"""Transforms from the path of a video to the tensor of its clips, with any image transforms in between."""

import random
from typing import Any, Literal

import numpy as np
import torch
from mmcv.transforms import BaseTransform
from mmengine.dataset import Compose
from mmengine.logging import print_log
from mmpretrain.datasets import PackInputs

from mmlisa.errors import UserError
from mmlisa.registry import TRANSFORMS

from .reading import DamagedVideoError, count_frames, read_frames


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


@TRANSFORMS.register_module()
class LoadClips(BaseTransform):
    """Sample clips of a video (a file or a folder of frames) and decode their frames.

    Reads ``img_path`` and, if it is given, ``num_frames``. Adds ``clips``, a list of V lists of T frames
    ``[H, W, 3]`` (BGR, uint8). A video shorter than a clip repeats frames.

    Args:
        length: frames T of a clip.
        stride: distance between the frames of dense sampling; None takes a frame of each of T equal segments (uniform sampling).
        num_clips: clips V; uniform sampling has one.
        random: draw new clips each time, for training; otherwise the clips are always the same.
        on_corrupt: ``'error'`` stops at a damaged video with a UserError. ``'skip'`` logs its name, and the dataset takes another
            one in training; a test stops in both cases.
    """

    def __init__(
        self,
        length: int,
        *,
        stride: int | None = None,
        num_clips: int = 1,
        random: bool = False,
        on_corrupt: Literal["error", "skip"] = "error",
    ) -> None:
        if stride is None and num_clips != 1:
            raise UserError(f"num_clips={num_clips}; uniform sampling (stride=None) has one clip")
        self.length, self.stride, self.num_clips, self.random = length, stride, num_clips, random
        self.on_corrupt = on_corrupt

    def transform(self, results: dict[str, Any]) -> dict[str, Any] | None:
        path = results["img_path"]
        try:
            total = results.get("num_frames") or count_frames(path)
            if self.stride is None:
                positions = uniform_positions(total, self.length, self.random)
            else:
                positions = dense_positions(total, self.length, self.stride, self.num_clips, self.random)
            frames = read_frames(path, positions.ravel())
        except DamagedVideoError as error:
            if self.on_corrupt == "error":
                raise DamagedVideoError(f"{error}. LoadClips(on_corrupt='skip') skips such videos") from error
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
