"""Frames of a video file, or of a folder with an image per frame. Only the requested frames are decoded."""

from collections.abc import Iterable
from pathlib import Path

import cv2
import numpy as np

from mmlisa.errors import UserError

FRAME_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")
# Skipping fewer frames than this is faster than a seek, which goes back to a key frame first.
_SEEK_FROM = 32


class DamagedVideoError(UserError):
    """A video with a missing or unusable frame; the message names both."""


def count_frames(path: str | Path) -> int:
    """Return the number of frames; of a video file, the number in its header. A video without frames is a DamagedVideoError."""
    path = Path(path)
    count = len(_frame_files(path)) if path.is_dir() else int(_open(path).get(cv2.CAP_PROP_FRAME_COUNT))
    if count < 1:
        raise DamagedVideoError(f"video {path} has no frames")
    return count


def read_frames(path: str | Path, positions: Iterable[int]) -> dict[int, np.ndarray]:
    """Return the frames at ``positions`` (from 0, in any order), each ``[H, W, 3]``, BGR, uint8.

    A missing video is a FileNotFoundError, a frame that is missing or damaged a DamagedVideoError.
    """
    path, ascending = Path(path), sorted({int(position) for position in positions})
    return _from_folder(path, ascending) if path.is_dir() else _from_file(path, ascending)


def _from_folder(path: Path, positions: list[int]) -> dict[int, np.ndarray]:
    files, frames = _frame_files(path), {}
    if positions[-1] >= len(files):
        raise DamagedVideoError(f"video {path} has {len(files)} frames, but frame {positions[-1]} is requested")
    for position in positions:
        frames[position] = cv2.imread(str(files[position]), cv2.IMREAD_COLOR)
        if frames[position] is None:
            raise DamagedVideoError(f"video {path}: frame {files[position].name} cannot be decoded")
    return frames


def _from_file(path: Path, positions: list[int]) -> dict[int, np.ndarray]:
    capture, following, frames = _open(path), 0, {}
    for position in positions:
        if position - following >= _SEEK_FROM:
            capture.set(cv2.CAP_PROP_POS_FRAMES, position)
            following = position
        while following < position and capture.grab():
            following += 1
        decoded, frame = capture.read()
        if not decoded:
            raise DamagedVideoError(f"video {path} ends early, or is damaged: its frame {position} cannot be decoded")
        frames[position], following = frame, position + 1
    return frames


def _open(path: Path) -> cv2.VideoCapture:
    if not path.exists():
        raise FileNotFoundError(f"video {path} does not exist")
    capture = cv2.VideoCapture(str(path))
    if not capture.isOpened():
        raise DamagedVideoError(f"video {path} cannot be opened: it is empty, damaged or not a video")
    return capture


def _frame_files(path: Path) -> list[Path]:
    return sorted(file for file in path.glob("[!.]*") if file.suffix.lower() in FRAME_SUFFIXES)
