"""Frames that carry their number, in a form that a lossy codec keeps, and videos of them."""

from pathlib import Path

import cv2
import numpy as np

_BITS = 6


def numbered_frames(count: int) -> np.ndarray:
    """``[count, 16, 48, 3]``, count at most 64: frame i shows the bits of i as white and black squares."""
    bits = ((np.arange(count)[:, None] >> np.arange(_BITS)) & 1).astype(np.uint8)
    frames = 255 * np.kron(bits[:, None, :], np.ones((1, 16, 8), np.uint8))
    return np.repeat(frames[..., None], 3, axis=-1)


def number_of(frame: np.ndarray) -> int:
    """The number that a frame of :func:`numbered_frames` carries."""
    squares = frame.reshape(16, _BITS, 8, 3).mean(axis=(0, 2, 3))
    return int(((squares > 128) << np.arange(_BITS)).sum())


def write_video(path: Path, frames: np.ndarray) -> None:
    """Write grey frames ``[T, H, W, 3]`` as MPEG-4."""
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"mp4v"), 8, frames.shape[2:0:-1])
    for frame in frames:
        writer.write(frame)
    writer.release()
