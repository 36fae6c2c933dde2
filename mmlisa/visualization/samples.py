"""Contact sheets: samples of a data set with their annotations, and the frames of clips."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mmcv
import numpy as np
import torch
from mmengine.registry import DATASETS
from mmengine.runner import set_random_seed
from torch import Tensor
from torchvision.utils import make_grid

from mmlisa.classes import Classes

from .overlays import draw_truth

_CELL = 360  # pixels of a side of a drawn sample
GAP = 2  # pixels between frames


def draw_samples(config: Mapping[str, Any], number: int, path: Path) -> None:
    """Draw samples of a data set with their annotations and names on one sheet, after all steps of its pipeline.

    Test pipelines resize images before they load annotations, which then have the size of the file.
    """
    set_random_seed(0)  # choice and augmentation
    dataset = DATASETS.build(config)
    inner = dataset
    while hasattr(inner, "dataset"):
        inner = inner.dataset
    steps = [type(step).__name__ for step in inner.pipeline.transforms]
    unresized = "LoadAnnotations" in steps and any("Resize" in step for step in steps[: steps.index("LoadAnnotations")])
    cells = []
    for index in np.random.permutation(len(dataset))[:number]:
        sample = dataset[int(index)]
        inputs, truth = sample["inputs"], sample["data_samples"]
        if inputs.ndim == 5:
            picture = contact_sheet(inputs)
        elif unresized:
            picture = mmcv.imread(truth.img_path, channel_order="rgb")
        else:  # pipelines may leave floating-point values, and beyond those of 8 bits
            picture = inputs.flip(0).permute(1, 2, 0).clamp(0, 255).byte().contiguous().numpy()
        drawn = draw_truth(picture, truth, Classes(dataset.metainfo), Path(truth.get("img_path", "")).name)
        cell = mmcv.imrescale(drawn, (_CELL - 8, _CELL - 8))
        cells.append(torch.from_numpy(mmcv.impad(cell, shape=(_CELL, _CELL), pad_val=(255,) * 3)).permute(2, 0, 1))
    sheet = make_grid(torch.stack(cells), math.ceil(math.sqrt(len(cells))), padding=0, pad_value=255)
    path.parent.mkdir(parents=True, exist_ok=True)
    mmcv.imwrite(sheet.permute(1, 2, 0).numpy()[..., ::-1], str(path))
    print(f"samples: {path}")


def contact_sheet(clips: Tensor, min_height: int = 128) -> np.ndarray:
    """Return the frames of clips ``[V, 3, T, H, W]`` (BGR, uint8) as ``[height, width, 3]`` (RGB), each clip in a row.

    Frames lower than ``min_height`` are enlarged by an integer factor, so that labels on them are readable. Between frames and
    rows are :data:`GAP` white pixels.
    """
    frames = clips.flip(1).transpose(1, 2).flatten(0, 1)  # [V T, 3, H, W]
    factor = max(1, -(-min_height // frames.shape[2]))
    frames = frames.repeat_interleave(factor, 2).repeat_interleave(factor, 3)
    sheet = make_grid(frames, clips.shape[2], GAP, pad_value=255)[:, GAP:-GAP, GAP:-GAP]
    return sheet.permute(1, 2, 0).cpu().numpy()
