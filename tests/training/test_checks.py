"""Silent mistakes are named before they cost time."""

from importlib import import_module
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import DATASETS
from torch import nn

from mmlisa.training.checks import (
    check_channels,
    check_classes,
    check_shapes,
    saved_metainfo,
)


def test_heads_of_another_number_of_classes_are_named():
    cascade = [dict(num_classes=2), dict(num_classes=80), dict(num_classes=2)]
    model = dict(rpn_head=dict(num_classes=1), roi_head=dict(bbox_head=cascade, mask_head=dict(num_classes=1)))
    assert check_classes(model, None, "train_dataloader.dataset") == ""
    message = (
        r"bbox_head\.num_classes=80, model\.roi_head\.mask_head\.num_classes=1, but val_dataloader\.dataset .*: set 2"
    )
    with pytest.raises(ValueError, match=message):
        check_classes(model, ("a", "b"), "val_dataloader.dataset")
    model["roi_head"]["mask_head"]["num_classes"] = 2
    assert "bbox_head.num_classes=80" in check_classes(model, ("a", "b"), "train_dataloader.dataset")
    cascade[1]["num_classes"] = 2
    assert check_classes(model, ("a", "b"), "train_dataloader.dataset") == ""


@pytest.mark.parametrize(
    "config",
    [
        "mmdet::mask_rcnn/mask-rcnn_r50_fpn_1x_coco.py",
        "mmdet::panoptic_fpn/panoptic-fpn_r50_fpn_1x_coco.py",
        "mmdet::mask2former/mask2former_r50_8xb2-lsj-50e_coco.py",
        "mmdet::mm_grounding_dino/coco/grounding_dino_swin-t_finetune_16xb4_1x_coco.py",
        "mmseg::upernet/upernet_r50_4xb4-80k_ade20k-512x512.py",
        "mmpretrain::resnet/resnet50_8xb32_in1k.py",
    ],
)
def test_the_libraries_own_heads_fit_their_data(config):
    """Their configs, and the classes that their data sets name."""
    library, name = config.split("::")
    path = Path(pytest.importorskip(library).__file__).parent / ".mim" / "configs" / name
    cfg = Config.fromfile(path)
    import_module(f"{library}.datasets")
    classes = DATASETS.get(f"{library}.{cfg.train_dataloader.dataset.type}").METAINFO["classes"]
    assert len(classes) > 10
    assert check_classes(cfg.model, classes, "train_dataloader.dataset") == ""


class Detector(nn.Module):
    def __init__(self, *channels):
        super().__init__()
        self.backbone = nn.Identity()
        self.backbone.feature_channels = channels


def test_a_neck_that_does_not_fit_the_backbone_is_refused():
    for takes in ([64, 128, 256], [64, 128]):
        with pytest.raises(ValueError, match=r"model\.neck\.in_channels"):
            check_channels(Detector(64, 128, 320), dict(neck=dict(type="FPN", in_channels=takes)))


@pytest.mark.parametrize(
    "neck",
    [
        dict(type="FPN", in_channels=[64, 128]),
        dict(type="YOLOV3Neck", in_channels=[128, 64]),  # takes the coarsest map first
        dict(type="CTResNetNeck", in_channels=128),  # reads the last map
        dict(type="GlobalAveragePooling"),
        [dict(type="GlobalAveragePooling"), dict(type="LinearNeck", in_channels=128, out_channels=32)],
        None,
    ],
)
def test_other_necks_pass(neck):
    check_channels(Detector(64, 128), dict(neck=neck))
    check_channels(nn.Identity(), dict(neck=dict(in_channels=[1])))  # another library's backbone


@pytest.mark.parametrize(
    "meta",
    [
        {"dataset_meta": {"classes": ("cat", "dog")}},
        {"dataset_meta": {"CLASSES": ("cat", "dog")}},  # mmdet before 3.0
        {"dataset_meta": [{"classes": ("cat", "dog")}, {"classes": ("dog", "newt")}]},  # a ConcatDataset
    ],
)
def test_shapes_that_differ_are_named_with_both_and_the_classes(meta):
    checkpoint = {"state_dict": nn.Linear(4, 8).state_dict(), "meta": meta}
    assert saved_metainfo(checkpoint) == {"classes": ("cat", "dog")}
    message = r"a\.pth.* weight is \[8, 4\] in the checkpoint and \[3, 4\] in the model.* 2 classes \(cat, dog\)"
    with pytest.raises(ValueError, match=message):
        check_shapes(nn.Linear(4, 3), checkpoint, "a.pth")
    check_shapes(nn.Linear(4, 8), checkpoint, "a.pth")
    check_shapes(nn.Linear(4, 8), {"other": torch.zeros(1)}, "a.pth")


def test_a_checkpoint_without_classes():
    assert saved_metainfo({"meta": {"dataset_meta": None}}) == saved_metainfo({}) == {}
