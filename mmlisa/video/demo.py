"""Demo clips, generated from a seed on first use: a real object moves over a real background, and the class is the motion.

Every clip comes with its reverse, which has the opposite class, so only the order of the frames distinguishes the two. In the
middle of a clip, place, size and angle of the object have the same distribution in all classes. The files are
``{train,val}/*.mp4`` and the lists ``{train,val}.txt``.
"""

from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import cv2
import numpy as np

from mmlisa.datasets.demo import make_once, random_background
from mmlisa.datasets.demo_objects import load_objects
from mmlisa.registry import DATASETS
from mmlisa.visualization.overlays import write_video

from .dataset import VideoDataset

CLASSES = ("down", "grow", "left", "right", "shrink", "turn_left", "turn_right", "up")
OPPOSITES = {"right": "left", "down": "up", "grow": "shrink", "turn_left": "turn_right"}
NUM_SCENES = {"train": 240, "val": 25}  # of each pair of opposites: 1920 and 200 clips
NUM_FRAMES, SIDE, FPS = 16, 56, 8
# Coins and flowers look the same when they turn.
OBJECTS = ("cat", "cup", "motorcycle", "person", "quokka", "rocket")


class Pose(NamedTuple):
    """Pose of an object: centre and length of its longer side in pixels, angle in degrees counter-clockwise."""

    x: float
    y: float
    size: float
    angle: float


def pose_at(middle: Pose, motion: str, time: float, side: int) -> Pose:
    """Return the pose at a time from -1 (first frame) to 1 (last), given that at 0; ``motion`` is a key of ``OPPOSITES``."""
    x, y, size, angle = middle
    if motion == "right":
        x += 0.28 * side * time
    elif motion == "down":
        y += 0.28 * side * time
    elif motion == "grow":
        size *= 1.7**time
    else:
        angle += 90 * time
    return Pose(x, y, size, angle)


def make_clip(rng: np.random.Generator, motion: str, num_frames: int = NUM_FRAMES, side: int = SIDE) -> np.ndarray:
    """Return one clip of ``motion``, a key of ``OPPOSITES``: ``[num_frames, side, side, 3]``, RGB, uint8."""
    background = random_background(rng, side, side)
    cutouts = load_objects()[OBJECTS[rng.integers(len(OBJECTS))]]
    cutout = cutouts[rng.integers(len(cutouts))]
    cutout = cutout[:, ::-1] if rng.random() < 0.5 else cutout
    # At most about twice the drawn size, so that bilinear sampling does not alias.
    scale = min(1, 2 * side / max(cutout.shape[:2]) * 0.5)
    cutout = cv2.resize(np.ascontiguousarray(cutout), None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    centre = side * rng.uniform(0.4, 0.6, 2)
    middle = Pose(*centre, side * rng.uniform(0.4, 0.55), rng.uniform(-30, 30))
    frames = []
    for time in np.linspace(-1, 1, num_frames):
        layer = _draw(cutout, pose_at(middle, motion, time, side), side)
        frames.append(background * (1 - layer[..., 3:]) + layer[..., :3])
    return np.round(np.stack(frames) * 255).clip(0, 255).astype(np.uint8)


def _draw(cutout: np.ndarray, pose: Pose, side: int) -> np.ndarray:
    """Return the cut-out (premultiplied RGBA ``[h, w, 4]``) in its pose on an empty canvas ``[side, side, 4]``."""
    height, width = cutout.shape[:2]
    middle = ((width - 1) / 2, (height - 1) / 2)
    transform = cv2.getRotationMatrix2D(middle, pose.angle, pose.size / max(height, width))
    transform[:, 2] += np.array([pose.x, pose.y]) - middle
    return cv2.warpAffine(cutout, transform, (side, side), flags=cv2.INTER_LINEAR)


def make_video_demo(
    root: str | Path, seed: int = 0, num_scenes: dict[str, int] | None = None, progress: bool = True
) -> Path:
    """Write the demo clips unless they exist; ``num_scenes`` is per split and pair of opposites, and a scene has two clips.

    Raises:
        ImportError: see :func:`mmlisa.datasets.demo.make_demo`.
    """
    return make_once(root, partial(_build, seed=seed, num_scenes=num_scenes or NUM_SCENES, progress=progress))


def _build(root: Path, seed: int, num_scenes: dict[str, int], progress: bool) -> None:
    from tqdm import tqdm

    for split, scenes in num_scenes.items():
        jobs = [(number, motion) for number in range(scenes) for motion in OPPOSITES]
        lines = []
        for number, motion in tqdm(jobs, f"demo clips, {split}", disable=not progress, mininterval=0.5):
            rng = np.random.default_rng([seed, list(NUM_SCENES).index(split), number, CLASSES.index(motion)])
            clip = make_clip(rng, motion)
            for name, frames in ((motion, clip), (OPPOSITES[motion], clip[::-1])):
                file = f"{split}/{name}_{number:03d}.mp4"
                write_video(root / file, frames, FPS)
                lines.append(f"{file} {len(frames)} {CLASSES.index(name)}\n")
        (root / f"{split}.txt").write_text("".join(lines))


@DATASETS.register_module()
class DemoVideoDataset(VideoDataset):
    """The demo clips, generated under ``data_root`` on first use; ``ann_file`` is ``'train.txt'`` or ``'val.txt'``."""

    METAINFO: ClassVar = {"classes": CLASSES}

    def load_data_list(self) -> list[dict[str, Any]]:
        if not Path(self.ann_file).is_file():
            make_video_demo(self.data_root)
        return super().load_data_list()
