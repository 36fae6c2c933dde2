"""Sampling of frames: positions ``[clips, length]`` from 0."""

import numpy as np


def dense_positions(total: int, length: int, stride: int, clips: int, random: bool) -> np.ndarray:
    """Return clips of every ``stride``-th frame (Wang et al., "Non-local neural networks"): ``[clips, length]``.

    The clips start at random if ``random``. Otherwise they start evenly from the first to the last possible frame, and a single
    clip lies in the middle. The last frame of a short video is repeated.
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
    """Return one frame of each of ``length`` equal segments (Wang et al., "Temporal segment networks"): ``[1, length]``.

    The frame is random if ``random``, otherwise the middle one. A video with fewer frames than segments repeats some.
    """
    edges = np.arange(length + 1) * total // length
    first, end = edges[:-1], edges[1:]
    if random:
        return np.random.randint(first, np.maximum(end, first + 1))[None]
    return ((first + end) // 2)[None]
