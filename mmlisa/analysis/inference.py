"""Predictions on single pictures, drawn by the visualizer of the model's own library."""

from collections.abc import Iterator, Sequence
from inspect import signature
from pathlib import Path

import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import Compose, pseudo_collate
from mmengine.device import get_device
from mmengine.registry import DATASETS, MODELS, VISUALIZERS, init_default_scope
from PIL import Image, UnidentifiedImageError

from mmlisa.checkpoints import load_weights

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp")


def predict_pictures(
    cfg: Config,
    checkpoint: str,
    images: Sequence[str],
    out_dir: Path,
    *,
    score_threshold: float = 0.3,
    device: str | None = None,
    min_matched: float = 0.9,
) -> Iterator[Path]:
    """Writes each image with its boxes, masks, labels and scores (or its segmentation, or its class) into ``out_dir``.

    Args:
        images: image files, or folders whose images are taken.
        score_threshold: detections below it are not drawn.
        device: where the model runs; None for a GPU where there is one.
        min_matched: share of the model's entries the checkpoint must hold.

    Yields:
        The path of each picture, as it is written.

    Raises:
        FileNotFoundError, ValueError: an image or checkpoint that is missing or damaged; all images are checked first.
    """
    paths = [_checked(path) for name in images for path in _expand(Path(name))]
    init_default_scope(cfg.get("default_scope", "mmengine"))
    model = MODELS.build(cfg.model)
    meta = load_weights(model, checkpoint, min_matched).get("meta", {})
    model.to(device or get_device()).eval()

    dataset = cfg.test_dataloader.dataset
    while "dataset" in dataset:
        dataset = dataset.dataset
    visualizer = VISUALIZERS.build({**cfg.visualizer, "vis_backends": None, "name": "infer"})
    visualizer.dataset_meta = meta.get("dataset_meta") or DATASETS.get(dataset.type).METAINFO
    # Pictures come without annotations.
    pipeline = Compose([step for step in dataset.pipeline if "LoadAnnotations" not in step["type"]])
    draw = visualizer.visualize_cls if hasattr(visualizer, "visualize_cls") else visualizer.add_datasample
    options = (
        {"draw_gt": False, "pred_score_thr": score_threshold} if "pred_score_thr" in signature(draw).parameters else {}
    )

    out_dir.mkdir(parents=True, exist_ok=True)
    for number, path in enumerate(paths):
        batch = pseudo_collate([pipeline({"img_path": str(path), "img_id": number})])
        with torch.no_grad():
            sample = model.test_step(batch)[0].cpu()
        target = out_dir / f"{path.stem}.png"
        picture = np.asarray(Image.open(path).convert("RGB"))
        if draw == visualizer.add_datasample:
            draw(path.stem, picture, sample, **{"draw_gt": False, **options}, out_file=str(target))
        else:
            draw(picture, sample, draw_gt=False, out_file=str(target))
        yield target


def _expand(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(p for p in path.iterdir() if p.suffix.lower() in IMAGE_SUFFIXES)
        if not found:
            raise FileNotFoundError(f"folder {path} holds no image ({', '.join(IMAGE_SUFFIXES)})")
        return found
    return [path]


def _checked(path: Path) -> Path:
    if not path.is_file():
        raise FileNotFoundError(f"image {path} does not exist")
    try:
        with Image.open(path) as image:
            image.load()
    except (UnidentifiedImageError, OSError) as error:
        raise ValueError(f"image {path} cannot be read: {error}") from error
    return path
