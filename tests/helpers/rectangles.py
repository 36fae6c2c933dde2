"""Pictures of rectangles, for data sets in formats that users bring."""

from pathlib import Path

import cv2
import numpy as np


def draw(folder: Path, count: int) -> list[tuple[str, np.ndarray, tuple[int, int, int, int]]]:
    """Grey pictures of 96 x 64 pixels, each with a bright rectangle; returns names, corners (relative) and boxes."""
    folder.mkdir(parents=True)
    rng, made = np.random.default_rng(0), []
    for index in range(count):
        picture = rng.integers(0, 90, (64, 96, 3), dtype=np.uint8)
        x, y = (int(v) for v in rng.integers((4, 4), (40, 20)))
        box = (x, y, x + 40, y + 30)
        picture[box[1] : box[3], box[0] : box[2]] = 220
        cv2.imwrite(str(folder / f"{index}.jpg"), picture)
        corners = np.array([(x, y), (x + 40, y), (x + 40, y + 30), (x, y + 30)]) / (96, 64)
        made.append((f"{index}", corners, box))
    return made
