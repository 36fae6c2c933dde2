"""What a recipe leaves to a library's own config is as it is there: every setting that differs is in a table."""

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from mmengine.config import Config

from mmlisa import config_path

# What a library leaves out or writes out at its default, and where weights come from.
NO_DIFFERENCE = {"_scope_", "init_cfg", "pretrained", "format_only", "cal_acc", "im2col_step"}
SECTIONS = (
    "model",
    "train_dataloader",
    "val_dataloader",
    "val_evaluator",
    "param_scheduler",
    "optim_wrapper.optimizer",
)
_SWIN_COCO = {"param_scheduler.0.end"}  # a warm-up of 500 iterations, as the 1x of Swin's own code
_CLASSIFIER = {
    *(f"{split}_dataloader.{key}" for split in ("train", "val") for key in ("batch_size", "num_workers")),
    *(f"{split}_dataloader.persistent_workers" for split in ("train", "val")),
    *(f"{split}_dataloader.dataset.{key}" for split in ("train", "val") for key in ("type", "split", "data_prefix")),
    *("param_scheduler.0.begin", "param_scheduler.1.end"),  # their defaults
}
# Ours, the library and its config, and where ours differs: paths, or beginnings of paths.
PAIRS = [
    (
        "mask_rcnn_flatten_swin_t_3x_coco.py",
        "mmdet",
        "swin/mask-rcnn_swin-t-p4-w7_fpn_ms-crop-3x_coco.py",
        _SWIN_COCO,
    ),
    (
        "cascade_mask_rcnn_flatten_swin_t_3x_coco.py",
        "mmdet",
        "convnext/cascade-mask-rcnn_convnext-t-p4-w7_fpn_4conv1fc-giou_amp-ms-crop-3x_coco.py",
        {*_SWIN_COCO, "optim_wrapper.optimizer.lr"},
    ),
    (
        "mask_rcnn_hylisanet_s_1x_coco.py",
        "mmdet",
        "swin/mask-rcnn_swin-t-p4-w7_fpn_1x_coco.py",
        {*_SWIN_COCO, "model.neck.in_channels"},
    ),
    (
        "upernet_flatten_swin_t_160k_ade20k.py",
        "mmseg",
        "swin/swin-tiny-patch4-window7-in1k-pre_upernet_8xb2-160k_ade20k-512x512.py",
        set(),
    ),
    (
        "semantic_fpn_flatten_pvt_t_80k_ade20k.py",
        "mmseg",
        "sem_fpn/fpn_r50_4xb4-160k_ade20k-512x512.py",
        {"model.neck.in_channels", "param_scheduler.0.end", "param_scheduler.0.eta_min", "optim_wrapper.optimizer"},
    ),
    (
        "mask2former_vit_b_160k_ade20k.py",
        "mmseg",
        "mask2former/mask2former_r50_8xb2-160k_ade20k-512x512.py",
        {
            *("model.neck", "model.decode_head.in_channels"),
            "train_dataloader.dataset.pipeline.2",  # as all of our segmentors: half to double size, continuously
            "optim_wrapper.optimizer.eps",  # its default
        },
    ),
    (
        "classifier_flatten_swin_t_300e_imagenet.py",
        "mmpretrain",
        "swin_transformer/swin-tiny_16xb64_in1k.py",
        # FLatten's code squashes the images of the test.
        {*_CLASSIFIER, *(f"val_dataloader.dataset.pipeline.1.{key}" for key in ("type", "scale", "edge"))},
    ),
    (
        "classifier_castling_deit_t_1000e_imagenet.py",
        "mmpretrain",
        "swin_transformer/swin-tiny_16xb64_in1k.py",
        {*_CLASSIFIER, "model.head.in_channels", "model.neck", "param_scheduler", "optim_wrapper.optimizer"},
    ),
]


def leaves(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting with its dotted path; lists and tuples alike."""
    if isinstance(node, Mapping | list | tuple):
        for key, value in node.items() if isinstance(node, Mapping) else enumerate(node):
            yield from leaves(value, f"{path}.{key}" if path else str(key))
    else:
        yield path, node.removeprefix("mmlisa.") if isinstance(node, str) else node


def read(path: str | Path) -> Config:
    return Config.fromfile(path, import_custom_modules=False)


def settings(cfg: Config) -> dict[str, Any]:
    preprocessor = {**(cfg.get("data_preprocessor") or {}), **(cfg.model.get("data_preprocessor") or {})}
    preprocessor.pop("type", None)  # of which each library has one
    model = {**cfg.model, "data_preprocessor": preprocessor, "backbone": {}}
    found = {}
    for section in SECTIONS:
        node = model if section == "model" else cfg.get(section.split(".")[0])
        node = node[section.split(".")[1]] if "." in section else node
        found.update({f"{section}.{path}": value for path, value in leaves(node)})
    return {path: value for path, value in found.items() if not set(path.split(".")) & NO_DIFFERENCE}


@pytest.mark.parametrize(("ours", "library", "theirs", "differing"), PAIRS, ids=[pair[0] for pair in PAIRS])
def test_settings(ours, library, theirs, differing):
    folder = Path(find_spec(library).submodule_search_locations[0], ".mim", "configs")
    mine, others = settings(read(config_path(ours))), settings(read(folder / theirs))
    paths = {path for path in {*mine, *others} if mine.get(path) != others.get(path)}
    unexpected = {path for path in paths if not any(f"{path}.".startswith(f"{known}.") for known in differing)}
    assert {path: (mine.get(path), others.get(path)) for path in unexpected} == {}
    assert not [known for known in differing if not any(f"{path}.".startswith(f"{known}.") for path in paths)]
