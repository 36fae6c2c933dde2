"""The training of :class:`mmlisa.Adaptation` for a backbone and a folder of images, as a config."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmengine.config import Config, ConfigDict

from mmlisa.errors import UserError

from .config import load_config, published_weights

# The last map alone would leave the blocks before it free.
_MAPS = (2, 5, 8, 11)
BACKBONES: dict[str, dict[str, Any]] = {
    "dinov2-s": dict(
        type="mmlisa.DINOv2",
        arch="small",
        out_indices=_MAPS,
        init_cfg=dict(type="mmlisa.PublishedWeights", source="timm:vit_small_patch14_dinov2.lvd142m"),
    ),
    "dinov3-s": dict(
        type="mmlisa.DINOv3",
        arch="small",
        out_indices=_MAPS,
        init_cfg=dict(type="mmlisa.PublishedWeights", source="timm:vit_small_patch16_dinov3.lvd1689m"),
    ),
}
# Options of a backbone in its own training, and of a classifier's: the maps are compared.
_NOT_TAKEN = ("init_cfg", "frozen_stages", "drop_path_rate", "norm_eval", "out_type")


def adaptation_config(
    model: str,
    images: str | Path,
    attention: Mapping[str, Any],
    *,
    weights: str | None,
    size: int,
    iters: int,
    work_dir: str,
) -> Config:
    """Return the config in which a backbone with another attention learns its own features from images.

    Args:
        model: a name of :data:`BACKBONES`, or a config whose backbone is the teacher.
        images: folder of images, searched with all folders below.
        attention: config of the student's operator.
        weights: the teacher's; by default the published ones of a name, or those that the config starts from.
        size: side of the crops in pixels.
        iters: length of the training that is planned; the log has a line for each 25 iterations, or forty lines.

    Raises:
        UserError: the config has no backbone, or states no weights.
    """
    cfg = load_config("adapt_dinov2_s_demo.py", work_dir=work_dir)
    if model in BACKBONES:
        backbone = BACKBONES[model]
    else:
        given = load_config(model)
        if "backbone" not in given.get("model", {}):
            raise UserError(f"config '{model}' has no model.backbone, which would be the teacher")
        backbone = given.model.backbone.to_dict()
        cfg.model.data_preprocessor.update(_normalisation(given))
    init_cfg = published_weights(backbone) | {"type": "mmlisa.PublishedWeights"}
    if weights:
        init_cfg["source"] = weights
    if "source" not in init_cfg:
        raise UserError(f"config '{model}' starts from no weights; name those of the teacher by --weights")
    teacher = {key: value for key, value in backbone.items() if key not in _NOT_TAKEN}
    cfg.model.teacher = ConfigDict(teacher)
    cfg.model.backbone = ConfigDict(teacher | {"attention": dict(attention), "init_cfg": init_cfg})
    dataset = cfg.train_dataloader.dataset
    dataset.update(type="CustomDataset", data_root="", data_prefix=str(images))
    crop = next(step for step in dataset.pipeline if step["type"] == "RandomResizedCrop")
    crop["scale"] = size
    cfg.default_hooks.logger.interval = cfg.log_processor.window_size = min(25, max(1, iters // 40))
    return cfg


def _normalisation(given: Config) -> dict[str, Any]:
    """Return mean, standard deviation and order of the channels of a detector's, segmentor's or classifier's config."""
    preprocessor = given.model.get("data_preprocessor") or given.get("data_preprocessor") or {}
    found = {key: preprocessor[key] for key in ("mean", "std") if key in preprocessor}
    if preprocessor:
        found["to_rgb"] = bool(preprocessor.get("bgr_to_rgb") or preprocessor.get("to_rgb"))
    return found
