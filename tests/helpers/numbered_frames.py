"""Frames that carry their number, in a form that a lossy codec keeps."""

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
