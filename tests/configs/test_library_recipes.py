"""Configs that are a library's recipe with another backbone: everything but the backbone equals the library's built objects."""

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import mmdet
import pytest
import timm
import torch
from mmdet.models.data_preprocessors import DetDataPreprocessor
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, init_default_scope
from torch import nn

from helpers.recipes import kinds
from mmlisa.conversion import match

CONFIGS = Path(__file__).parents[2] / "configs"
MMDET = Path(mmdet.__file__).parent / ".mim" / "configs"
RGB = {"data_preprocessor"}  # RTMDet's own backbone takes BGR
# Beginning of our names, mmdet's config, and what differs in the model beside the backbone and the channels that the neck takes.
LIBRARY = {
    "dino_{}_12e_coco": ("dino/dino-4scale_r50_8xb2-12e_coco.py", set()),
    "dino_{}_36e_coco": ("dino/dino-4scale_r50_8xb2-36e_coco.py", set()),
    "rtmdet_ins_{}_300e_coco": ("rtmdet/rtmdet-ins_l_8xb32-300e_coco.py", RGB),
    "mask2former_{}_50e_coco": ("mask2former/mask2former_swin-t-p4-w7-224_8xb2-lsj-50e_coco.py", set()),
}
BACKBONES = ("hylisanet_s", "flatten_swin_t", "ivit_t")
PAIRS = {name.format(backbone): known for name, known in LIBRARY.items() for backbone in BACKBONES}
PAIRS["rtmdet_tiny_castling_lcnet_s_300e_coco"] = ("rtmdet/rtmdet_tiny_8xb32-300e_coco.py", RGB)
BACKBONES_OF_VITDET = ("flatten_deit_t", "castling_vit_b", "lisanet_i", "dinov2_s", "dinov3_s")
UPERNET = {"upernet_dinov2_s_160k_ade20k", "upernet_dinov3_b_160k_ade20k"}
VITDET = {f"mask_rcnn_vitdet_{name}_100e_coco" for name in BACKBONES_OF_VITDET}


def read(path: Path) -> Config:
    return Config.fromfile(path, import_custom_modules=False)


def build(cfg: Config) -> nn.Module:
    init_default_scope("mmdet")
    cfg = cfg.copy()
    cfg.model.backbone.pop("init_cfg", None)
    if cfg.model.backbone.type == "SwinTransformer":  # mmdet's reads numbers from tensors
        return MODELS.build(cfg.model)
    with torch.device("meta"):
        return MODELS.build(cfg.model)


def groups(cfg: Config, model: nn.Module) -> dict[str, tuple[float, float]]:
    """Learning rate and weight decay of each parameter that the built optimizer trains."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    optimizer = build_optim_wrapper(model, cfg.optim_wrapper).optimizer
    return {
        names[id(parameter)]: (pytest.approx(group["lr"]), group["weight_decay"])
        for group in optimizer.param_groups
        for parameter in group["params"]
    }


def without(node: Any, *names: str) -> Any:
    """A setting without some of its keys, and without MMEngine's marks of inheritance from a library."""
    if isinstance(node, list | tuple):
        return [without(each) for each in node]
    if not isinstance(node, dict):
        return node
    return {key: without(value) for key, value in node.items() if key not in {*names, "_scope_"}}


def test_every_such_config_is_here():
    ours = {path.stem for path in CONFIGS.rglob("*.py") if re.match(r"#[^\n]+Ours: \w+'s recipe", path.read_text())}
    assert ours == PAIRS.keys() | VITDET | UPERNET


@pytest.mark.parametrize(
    "path",
    [path for path in CONFIGS.rglob("*.py") if "PublishedWeights" in path.read_text()],
    ids=lambda path: path.stem,
)
def test_the_weights_that_a_config_names_are_of_its_size(path):
    """Those of another width fit in a few entries only, which the log alone says."""
    backbone = read(path).model.backbone
    source = (backbone.pop("init_cfg", None) or {}).get("source", "")
    if not source.startswith("timm:"):
        pytest.skip("a file that the user has, or a comment")
    with torch.device("meta"):
        built, state = MODELS.build(backbone), timm.create_model(source.removeprefix("timm:")).state_dict()
    matched = match(state, built)
    assert matched.share > 0.05, matched.report()


@pytest.mark.parametrize("name", PAIRS)
def test_schedule_data_and_heads_are_the_librarys(name):
    theirs, differing = PAIRS[name]
    mine, other = read(CONFIGS / f"{name}.py"), read(MMDET / theirs)
    for section in ("train_cfg", "train_dataloader", "val_dataloader", "val_evaluator", "param_scheduler"):
        expected = without(other[section])
        if section.endswith("_dataloader"):  # Mask2Former's instances never read the panoptic folder that it inherits
            expected["dataset"].get("data_prefix", {}).pop("seg", None)
        if section == "val_evaluator":  # which has the APs of the classes in their order
            expected["type"] = "mmlisa.CocoMetric"
        assert without(mine[section]) == expected, section
    # RTMDet's files inherit the 16 images of another recipe.
    images = 256 if name.startswith("rtmdet") else other.auto_scale_lr.base_batch_size
    assert mine.auto_scale_lr.base_batch_size == images
    assert without(mine.optim_wrapper.optimizer) == without(other.optim_wrapper.optimizer)
    assert mine.optim_wrapper.get("clip_grad") == other.optim_wrapper.get("clip_grad")
    assert without(mine.model, "backbone", "neck", "panoptic_head", *differing) == without(
        other.model, "backbone", "neck", "panoptic_head", *differing
    )
    for part in {"neck", "panoptic_head"} & other.model.keys():
        assert without(mine.model[part], "in_channels") == without(other.model[part], "in_channels")
        assert len(mine.model[part].in_channels) == len(other.model[part].in_channels)
    hooks, theirs = without(mine.custom_hooks), without(other.get("custom_hooks", []))
    assert all(hook in hooks for hook in theirs)  # EMA, the switch of the pipeline
    added = {hook["type"] for hook in hooks if hook not in theirs}
    assert "mmlisa.FiniteLossHook" in added
    assert all(hook.startswith("mmlisa.") for hook in added)


@pytest.mark.parametrize("name", PAIRS)
def test_parameter_groups_are_the_librarys(name):
    """By name outside of the backbone; in it by kind: a norm as mmdet's norms, a matrix as its matrices."""
    mine, other = read(CONFIGS / f"{name}.py"), read(MMDET / PAIRS[name][0])
    model, reference = build(mine), build(other)
    ours, theirs = groups(mine, model), groups(other, reference)
    heads = {key: group for key, group in theirs.items() if not key.startswith(("backbone.", "neck.convs"))}
    assert len(heads) > 50
    assert {key: ours.get(key) for key in heads} == heads
    backbone = {key: kind for key, kind, _ in kinds(model) if key.startswith("backbone.")}
    assert backbone.keys() <= ours.keys()
    expected = {kind: theirs[key] for key, kind, _ in kinds(reference) if key.startswith("backbone.")}
    if (
        "ResNet" in type(reference.backbone).__name__
    ):  # its norms are frozen; mmdet's Swin under DINO has the same groups
        expected = dict.fromkeys(("weight", "norm", "bias"), expected["weight"])
    # Scales and StarReLU's bias decay as little as biases do in CAFormer's recipe; LiSA's biases are matrices.
    known = {key: "bias" if kind == "weight" and key.endswith(".bias") else kind for key, kind in backbone.items()}
    checked = {key: expected[kind] for key, kind in known.items() if kind in expected and kind != "scale"}
    assert len(checked) > 80
    assert {key: ours[key] for key in checked} == checked


@pytest.mark.parametrize("name", sorted(VITDET))
def test_vitdet_sees_images_of_the_size_of_its_positions(name):
    """tests/helpers/recipes/papers.yml has the rest of its recipe."""
    cfg = read(CONFIGS / f"{name}.py")
    assert cfg.train_cfg.max_epochs * cfg.train_dataloader.dataset.times == 100
    (resize,) = (step for step in cfg.train_dataloader.dataset.dataset.pipeline if step.type == "RandomResize")
    assert resize.ratio_range == (0.1, 2.0)
    pad = DetDataPreprocessor(**{k: v for k, v in cfg.model.data_preprocessor.items() if k != "type"})
    for training in (True, False):  # smaller images are padded
        batch = dict(inputs=[torch.zeros(3, 700, 500)], data_samples=None)
        assert pad(batch, training)["inputs"].shape == (1, 3, 1024, 1024)


@pytest.mark.parametrize("name", sorted(UPERNET))
def test_upernet_on_a_vit_has_the_recipe_of_mmsegmentations_beit(name):
    ours = read(CONFIGS / f"{name}.py")
    root = Path(find_spec("mmseg").origin).parent / ".mim" / "configs"
    theirs = read(root / "beit" / "beit-base_upernet_8xb2-160k_ade20k-640x640.py")
    assert ours.optim_wrapper.optimizer == theirs.optim_wrapper.optimizer
    assert ours.optim_wrapper.paramwise_cfg.layer_decay == theirs.optim_wrapper.paramwise_cfg.layer_decay_rate
    assert ours.train_dataloader.batch_size == theirs.train_dataloader.batch_size
    assert ours.train_cfg.max_iters == theirs.train_cfg.max_iters
    for key in ("out_indices", "drop_path_rate"):
        assert ours.model.backbone[key] == theirs.model.backbone[key]
    assert ours.model.neck.rescales == theirs.model.neck.rescales
    for mine, known in zip(ours.param_scheduler, theirs.param_scheduler, strict=True):
        assert dict(mine) == dict(known)
