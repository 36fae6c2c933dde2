"""Training images as the model gets them, augmented and with their annotations, on one sheet."""

import math
import random

import cv2
import numpy as np
import torch
from mmengine.config import Config
from mmengine.registry import DATASETS, init_default_scope

from mmlisa.visualization.overlays import Classes, draw_truth

_CELL = 360  # pixels


def to_picture(inputs: torch.Tensor) -> np.ndarray:
    """The inputs of a sample, as a pipeline packs them, as a picture: RGB, ``[H, W, 3]``, uint8.

    Args:
        inputs: an image ``[3, H, W]`` in BGR, or the clips of a video ``[clips, 3, T, H, W]``, drawn in rows.
    """
    if inputs.ndim == 5:
        from mmlisa.video import contact_sheet

        return contact_sheet(inputs)
    # Pipelines may leave floating-point values, and beyond those of 8 bits.
    return inputs.flip(0).permute(1, 2, 0).clamp(0, 255).byte().contiguous().numpy()


def draw_training_images(cfg: Config, number: int, seed: int = 0) -> np.ndarray:
    """Return a sheet with training images of a config.

    Args:
        cfg: a whole config.
        number: images on the sheet; a smaller data set is drawn whole.
        seed: seed of the choice of images and of their augmentation.

    Returns:
        RGB, ``[H, W, 3]``, uint8.

    Raises:
        ValueError: ``number`` is not greater than 0, or the data set is empty.
    """
    if number < 1:
        raise ValueError(f"--images '{number}' is not greater than 0")
    init_default_scope(cfg.get("default_scope", "mmengine"))
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    dataset = DATASETS.build(cfg.train_dataloader.dataset)
    if not len(dataset):
        raise ValueError("train_dataloader.dataset holds no image with annotations")
    classes = Classes(dataset.metainfo)
    cells = []
    for index in np.random.permutation(len(dataset))[:number]:
        entry = dataset[int(index)]
        cells.append(_fit_cell(draw_truth(to_picture(entry["inputs"]), entry["data_samples"], classes)))
    columns = math.ceil(math.sqrt(len(cells)))
    cells += [np.full_like(cells[0], 255)] * (-len(cells) % columns)
    return np.vstack([np.hstack(cells[row : row + columns]) for row in range(0, len(cells), columns)])


def _fit_cell(picture: np.ndarray) -> np.ndarray:
    """Return the picture in the middle of a white square."""
    height, width = picture.shape[:2]
    scale = (_CELL - 8) / max(height, width)
    size = max(1, round(width * scale)), max(1, round(height * scale))
    small = cv2.resize(picture, size, interpolation=cv2.INTER_AREA)
    cell = np.full((_CELL, _CELL, 3), 255, np.uint8)
    top, left = (_CELL - size[1]) // 2, (_CELL - size[0]) // 2
    cell[top : top + size[1], left : left + size[0]] = small
    return cell
