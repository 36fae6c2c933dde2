"""Frames of a video file, or of a folder with an image per frame. Only the requested frames are decoded."""

from collections.abc import Iterable
from pathlib import Path

import cv2
import numpy as np

FRAME_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")
# Skipping fewer frames than this is faster than a seek, which goes back to a key frame first.
_SEEK_FROM = 32


class DamagedVideoError(ValueError):
    """A video with a missing or unusable frame; the message names both."""


def count_frames(path: str | Path) -> int:
    """Return the number of frames; of a video file, the number in its header.

    Raises:
        FileNotFoundError: the file or folder does not exist.
        DamagedVideoError: the file is not a video, or the video or folder has no frames.
    """
    path = _existing(path)
    count = len(_frame_files(path)) if path.is_dir() else int(_open(path).get(cv2.CAP_PROP_FRAME_COUNT))
    if count < 1:
        raise DamagedVideoError(f"video {path} has no frames")
    return count


def read_frames(path: str | Path, positions: Iterable[int]) -> dict[int, np.ndarray]:
    """Return the frames at ``positions`` (from 0, in any order), each ``[H, W, 3]``, BGR, uint8.

    Raises:
        FileNotFoundError: the file or folder does not exist.
        DamagedVideoError: a frame is missing or damaged.
    """
    path, wanted = _existing(path), sorted({int(position) for position in positions})
    return _from_folder(path, wanted) if path.is_dir() else _from_file(path, wanted)


def _from_folder(path: Path, wanted: list[int]) -> dict[int, np.ndarray]:
    files = _frame_files(path)
    if wanted[-1] >= len(files):
        raise DamagedVideoError(f"video {path} has {len(files)} frames, but frame {wanted[-1]} is requested")
    frames = {}
    for position in wanted:
        frames[position] = cv2.imread(str(files[position]), cv2.IMREAD_COLOR)
        if frames[position] is None:
            raise DamagedVideoError(f"video {path}: frame {files[position].name} cannot be decoded")
    return frames


def _from_file(path: Path, wanted: list[int]) -> dict[int, np.ndarray]:
    capture, here, frames = _open(path), 0, {}
    for position in wanted:
        if position - here >= _SEEK_FROM:
            capture.set(cv2.CAP_PROP_POS_FRAMES, position)
            here = position
        while here < position and capture.grab():
            here += 1
        decoded, frame = capture.read()
        if not decoded:
            raise DamagedVideoError(f"video {path} ends early, or is damaged: its frame {position} cannot be decoded")
        frames[position], here = frame, position + 1
    return frames


def _existing(path: str | Path) -> Path:
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"video {path} does not exist")
    return path


def _open(path: Path) -> cv2.VideoCapture:
    capture = cv2.VideoCapture(str(path))
    if not capture.isOpened():
        raise DamagedVideoError(f"video {path} cannot be opened: it is empty, damaged or not a video")
    return capture


def _frame_files(path: Path) -> list[Path]:
    return sorted(file for file in path.glob("[!.]*") if file.suffix.lower() in FRAME_SUFFIXES)
