"""Users' mistakes are named before they cost time."""

import re

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS
from torch import nn

from mmlisa.engine.checks import (
    check_channels,
    check_classes,
    check_data,
    check_options,
    check_schedule,
    check_shapes,
    explain_unknown_type,
    shape_conflicts,
)

CFG = Config(
    dict(
        model=dict(backbone=dict(type="mmlisa.LiSANet", arch="hybrid-small"), neck=None),
        optim_wrapper=dict(optimizer=dict(type="AdamW", lr=1e-4)),
        custom_hooks=[dict(type="A", interval=1)],
        train_cfg=dict(max_iters=5),
    )
)


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("optim_wraper.optimizer.lr", "no optim_wraper; did you mean optim_wrapper.optimizer.lr?"),
        ("optim_wrapper.optimiser.lr", "did you mean optim_wrapper.optimizer.lr?"),
        ("train_cfg.max_iter", "did you mean train_cfg.max_iters?"),
        ("custom_hooks.0.intervall", "did you mean custom_hooks.0.interval?"),
        ("custom_hooks.1.interval", "a list of 1; after it comes an index from 0 to 0, not '1'"),
        ("custom_hooks.first.interval", "not 'first'"),
        ("model.backbone.arch.depths", "model.backbone.arch is 'hybrid-small', which has no entries"),
        ("xyz", "the config has custom_hooks, model"),
        ("load_form", "did you mean load_from?"),
    ],
)
def test_unknown_options_are_named_with_the_closest(key, hint):
    with pytest.raises(ValueError, match=hint.replace("?", r"\?").replace(".", r"\.")):
        check_options(CFG, {key: 1})


def test_known_and_new_options_pass():
    known = ["optim_wrapper.optimizer.lr", "custom_hooks.0.interval", "model"]
    new = ["optim_wrapper.clip_grad.max_norm", "load_from", "model.neck.in_channels", "model.backbone.drop_path_rate"]
    assert check_options(CFG, dict.fromkeys([*known, *new], 1)) == new


def schedule(end, length, unit="iters"):
    """The demos' schedule: a warm-up of 30 iterations, then a cosine."""
    parts = [dict(type="LinearLR", begin=0, end=30), dict(type="CosineAnnealingLR", begin=30, end=end)]
    parts = [dict(part, by_epoch=unit == "epochs") for part in parts]
    return Config(dict(param_scheduler=parts, train_cfg={f"max_{unit}": length}))


@pytest.mark.parametrize("end", [10, 30])
def test_a_schedule_that_ends_before_it_begins_says_what_to_set(end):
    cfg = schedule(end, 10)
    message = rf"begins at 30 and ends at {end}: set param_scheduler\.1\.end above 30, or (.*) below {end}$"
    with pytest.raises(ValueError, match=message) as raised:
        check_schedule(cfg)
    for key in re.search(message, str(raised.value))[1].split(" and "):  # what the message says is enough
        cfg.merge_from_dict({key: 5})
    assert "ends after 10 iterations" in check_schedule(schedule(31, 10))
    check_schedule(cfg)


@pytest.mark.parametrize("unit", ["iters", "epochs"])
def test_a_training_shorter_than_its_schedule_is_noted(unit):
    assert check_schedule(schedule(400, 100, unit)).endswith("later: param_scheduler.1.end=400")
    assert check_schedule(schedule(400, 10, unit)).endswith(
        "later: param_scheduler.0.end=30, param_scheduler.1.end=400"
    )
    assert not check_schedule(schedule(400, 400, unit))
    assert not check_schedule(schedule(400, 500, unit))


def test_schedules_that_cannot_be_compared_pass():
    warm_up = dict(type="LinearLR", by_epoch=False, begin=0, end=500)  # iterations of a training by epochs
    for parts in (warm_up, [warm_up, dict(type="MultiStepLR", milestones=[8, 11])], dict(backbone=[warm_up]), None):
        assert not check_schedule(Config(dict(param_scheduler=parts, train_cfg=dict(max_epochs=12))))


def loader(**dataset):
    return Config(dict(train_dataloader=dict(dataset=dict(type="ADE20KDataset", **dataset))))


def test_missing_data_are_named_with_their_setting(tmp_path):
    prefix = dict(img_path="images/training", seg_map_path="annotations/training")
    (tmp_path / "images" / "training").mkdir(parents=True)
    with pytest.raises(
        FileNotFoundError, match=r"folder .*/annotations/training does not exist .*data_prefix\.seg_map_path="
    ):
        check_data(loader(data_root=str(tmp_path), data_prefix=prefix), "train", "val")
    (tmp_path / "annotations" / "training").mkdir(parents=True)
    check_data(loader(data_root=str(tmp_path), data_prefix=prefix), "train")
    with pytest.raises(
        FileNotFoundError, match=r"annotation file .*a\.json .*train_dataloader\.dataset\.ann_file='a\.json'"
    ):
        check_data(loader(data_root=str(tmp_path), ann_file="a.json", data_prefix=prefix), "train")
    wrapped = Config(
        dict(train_dataloader=dict(dataset=dict(type="Repeat", dataset=dict(data_root="no", data_prefix="x"))))
    )
    with pytest.raises(
        FileNotFoundError, match=r"folder no/x does not exist .no is missing.*dataset\.dataset\.data_prefix"
    ):
        check_data(wrapped, "train")
    check_data(loader(data_root="s3://bucket", data_prefix=prefix), "train")


def test_a_missing_file_of_the_evaluator_is_named(tmp_path):
    cfg = loader(data_root=str(tmp_path))
    cfg.train_evaluator = [dict(type="Other"), dict(type="CocoMetric", ann_file="no/such.json")]
    with pytest.raises(FileNotFoundError, match=r"no/such\.json does not exist: train_evaluator\.ann_file"):
        check_data(cfg, "train")
    cfg.train_dataloader.dataset.type = "mmlisa.DemoCocoDataset"  # makes the file
    check_data(cfg, "train")


def mask_rcnn() -> nn.Module:
    """Two classes, but in the mask head, and with parts whose num_classes means something else."""
    model = nn.ModuleDict({name: nn.Identity() for name in ("backbone", "rpn_head", "roi_head", "neck")})
    model["backbone"].num_classes, model["rpn_head"].num_classes = 1000, 1
    model["roi_head"].bbox_head = nn.ModuleList([nn.Identity(), nn.Identity()])
    model["roi_head"].mask_head = nn.Identity()
    for head in (*model["roi_head"].bbox_head, model["roi_head"].mask_head):
        head.num_classes = 2
    return model


def test_heads_of_another_number_of_classes_are_named():
    model = mask_rcnn()
    check_classes(model, ("a", "b"), "train_dataloader.dataset")
    check_classes(model, None, "train_dataloader.dataset")
    model["roi_head"].bbox_head[1].num_classes = 80
    expected = "model.roi_head.bbox_head.1.num_classes=80, but val_dataloader.dataset has 2 classes (a, b): set 2"
    with pytest.raises(ValueError, match=f"^{re.escape(expected)}$"):
        check_classes(model, ("a", "b"), "val_dataloader.dataset")


@pytest.mark.parametrize(
    ("name", "hint"), [("LisaNet", "did you mean mmlisa.LiSANet"), ("mmlisa.lisanet", "mmlisa.LiSANet")]
)
def test_unknown_types_are_named_with_the_closest(name, hint):
    with pytest.raises(KeyError) as error:
        MODELS.build(dict(type=name))
    assert hint in str(explain_unknown_type(error.value))
    assert explain_unknown_type(KeyError("img_path")) is None


class Detector(nn.Module):
    def __init__(self, *channels):
        super().__init__()
        self.backbone = nn.Identity()
        self.backbone.feature_channels = channels


@pytest.mark.parametrize(
    ("cfg", "hint"),
    [
        (dict(neck=dict(type="FPN", in_channels=[256, 512])), r"Set model\.neck\.in_channels=\[64, 128, 320\]"),
        (dict(neck=dict(type="FPN", in_channels=[64, 128])), r"returns 3 maps of \[64, 128, 320\] channels"),
        (dict(rpn_head=dict(in_channels=256)), r"no neck.* model\.neck=dict\(type='FPN', in_channels=\[64, 128, 320\]"),
        (dict(head=dict(in_channels=64)), r"model\.head\.in_channels=320"),
        (dict(decode_head=dict(in_channels=[64, 128], in_index=[0, 2])), r"decode_head\.in_channels=\[64, 320\]"),
        (dict(decode_head=dict(in_channels=64, in_index=3)), r"in_index=3.* returns 3 maps"),
    ],
)
def test_a_backbone_that_does_not_fit_is_named_with_what_fits(cfg, hint):
    with pytest.raises(ValueError, match=hint):
        check_channels(Detector(64, 128, 320), cfg)


def test_a_backbone_that_fits():
    for cfg in (
        dict(neck=dict(type="FPN", in_channels=[64, 128]), rpn_head=dict(in_channels=256)),
        dict(neck=dict(type="GlobalAveragePooling"), head=dict(in_channels=128)),
        dict(
            decode_head=dict(in_channels=[64, 128], in_index=[0, 1]),
            auxiliary_head=[dict(in_channels=128, in_index=-1)],
        ),
        dict(panoptic_head=dict(in_channels=[64, 128])),
    ):
        check_channels(Detector(64, 128), cfg)
    check_channels(nn.Identity(), dict(neck=dict(in_channels=[1])))


def test_shapes_that_differ_are_named_with_both():
    checkpoint = {"state_dict": nn.Linear(4, 8).state_dict(), "meta": {"dataset_meta": {"classes": ("cat", "dog")}}}
    message = r"weight is \[8, 4\] in the checkpoint and \[3, 4\] in the model.*trained for 2 classes \(cat, dog\)"
    with pytest.raises(ValueError, match=f"checkpoint a.pth does not fit the config: {message}"):
        check_shapes(nn.Linear(4, 3), checkpoint, "a.pth")
    assert shape_conflicts(nn.Linear(4, 8), checkpoint) == ""
    assert shape_conflicts(nn.Linear(4, 8), {"other": torch.zeros(1)}) == ""
