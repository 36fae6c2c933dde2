"""Images that show the same: copies in two splits, also those saved again, and frames of one video."""

import re
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Protocol

import cv2
import numpy as np

_SIDE = 16  # of a thumbnail, pixels
_SAME = 4  # grey levels by which JPEG or another size changes a pixel of a thumbnail
_FLAT = 4  # standard deviation of a thumbnail in grey levels, below which it could be that of another image
_SPLITS = {"train", "training", "val", "valid", "validation", "test"}
_FEWEST_FRAMES = 10  # neighbours in a row of numbered images


class Image(Protocol):
    """An image that was read."""

    digest: bytes  # hash of the file
    thumbnail: bytes  # see :func:`make_thumbnail`


class Frame(Image, Protocol):
    """An image of a folder."""

    path: str
    split: str


def make_thumbnail(picture: np.ndarray) -> bytes:
    """Return 16x16 grey levels of an image ``[H, W, 3]`` (BGR, uint8); nothing for a nearly uniform image."""
    grey = cv2.cvtColor(cv2.resize(picture, (_SIDE, _SIDE), interpolation=cv2.INTER_AREA), cv2.COLOR_BGR2GRAY)
    return grey.tobytes() if grey.std() > _FLAT else b""


def find_copies(images: Sequence[Image], others: Sequence[Image]) -> list[int]:
    """Return the indices of the images that are among ``others``, too: the same file, or the same picture saved again."""
    digests = {other.digest for other in others}
    found = {index for index, image in enumerate(images) if image.digest in digests}
    rest = [index for index, image in enumerate(images) if image.thumbnail and index not in found]
    known = [other.thumbnail for other in others if other.thumbnail]
    if rest and known:
        from scipy.spatial import KDTree  # `mmlisa train` imports this file and does not compare images

        tree, queries = KDTree(_stack(known)), _stack([images[index].thumbnail for index in rest])
        distances, _ = tree.query(queries, p=np.inf, distance_upper_bound=_SAME + 0.5)
        found |= {index for index, distance in zip(rest, distances, strict=True) if distance <= _SAME}
    return sorted(found)


def find_cut_videos(frames: Sequence[Frame]) -> list[tuple[Frame, Frame]]:
    """Return neighbours of different splits among images with numbered names, if these are frames of videos.

    They are if neighbours are at most half as different as images far apart.
    """
    videos = defaultdict(list)
    for frame in filter(lambda frame: frame.thumbnail, frames):
        path = PurePosixPath(frame.path)
        name = re.sub(r"(_(jpe?g|png))?\.rf\..*", "", path.name)  # Roboflow's copies
        if numbered := re.fullmatch(r"(.*?)(\d+)\D*", name):
            # The parts of a video lie in folders of their splits.
            folders = tuple(part for part in path.parent.parts if part.lower() not in _SPLITS)
            videos[folders, numbered[1]].append((int(numbered[2]), frame))
    rows = [[frame for _, frame in sorted(video, key=lambda each: each[0])] for video in videos.values()]
    pairs = [pair for row in rows for pair in pairwise(row)]
    if len(pairs) < _FEWEST_FRAMES:
        return []
    ordered = [frame for row in rows for frame in row]
    far = zip(ordered, ordered[len(ordered) // 2 :] + ordered[: len(ordered) // 2], strict=True)
    if 2 * _difference(pairs) > _difference([*far]):
        return []
    return [(first, second) for first, second in pairs if first.split != second.split]


def _stack(thumbnails: Sequence[bytes]) -> np.ndarray:
    return np.stack([np.frombuffer(thumbnail, np.uint8) for thumbnail in thumbnails])


def _difference(pairs: Sequence[tuple[Frame, Frame]]) -> float:
    """Return the median of the mean differences of pairs, in grey levels."""
    first, second = (_stack([pair[side].thumbnail for pair in pairs]).astype(int) for side in (0, 1))
    return float(np.median(np.abs(first - second).mean(1)))
