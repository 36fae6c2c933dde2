"""Users' mistakes are named before they cost time."""

import re
from importlib import import_module
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.dataset import Compose
from mmengine.registry import DATASETS, MODELS, TRANSFORMS
from mmlisa.training.config_checks import check_data, check_schedule
from torch import nn

from mmlisa.training.checks import (
    check_channels,
    check_classes,
    check_first_image,
    check_shapes,
    compare_classes,
    explain_unknown_type,
    saved_metainfo,
    shape_conflicts,
)
from mmlisa.training.config import check_options

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
        ("custom_hooks.1.interval", "a list of 1; an index from 0 to 0 must follow, not '1'"),
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
    with pytest.raises(FileNotFoundError, match=r"no/such\.json of train_evaluator\.1\.ann_file does not exist"):
        check_data(cfg, "train")
    cfg.train_evaluator = dict(type="CocoMetric", ann_file="no/such.json")
    with pytest.raises(FileNotFoundError, match=r"train_evaluator\.ann_file"):
        check_data(cfg, "train")
    cfg.train_evaluator.backend_args = dict(backend="petrel")
    check_data(cfg, "train")
    cfg.train_evaluator.backend_args = None
    cfg.train_dataloader.dataset.type = "mmlisa.DemoCocoDataset"  # makes the file
    check_data(cfg, "train")


def test_heads_of_another_number_of_classes_are_named():
    cascade = [dict(num_classes=2), dict(num_classes=80), dict(num_classes=2)]
    model = dict(rpn_head=dict(num_classes=1), roi_head=dict(bbox_head=cascade, mask_head=dict(num_classes=1)))
    assert check_classes(model, None, "train_dataloader.dataset") == ""
    expected = (
        "model.roi_head.bbox_head.1.num_classes=80, model.roi_head.mask_head.num_classes=1, but val_dataloader.dataset has 2 "
        "classes (a, b): set 2"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(expected)}$"):
        check_classes(model, ("a", "b"), "val_dataloader.dataset")
    model["roi_head"]["mask_head"]["num_classes"] = 2
    expected = (
        "model.roi_head.bbox_head.1.num_classes=80, but train_dataloader.dataset has 2 classes (a, b): the surplus"
    )
    assert check_classes(model, ("a", "b"), "train_dataloader.dataset").startswith(expected)
    cascade[1]["num_classes"] = 2
    assert check_classes(model, ("a", "b"), "train_dataloader.dataset") == ""


@pytest.mark.parametrize(
    "config",
    [
        "mmdet::rpn/rpn_r50_fpn_1x_coco.py",
        "mmdet::mask_rcnn/mask-rcnn_r50_fpn_1x_coco.py",
        "mmdet::panoptic_fpn/panoptic-fpn_r50_fpn_1x_coco.py",
        "mmdet::htc/htc_r50_fpn_1x_coco.py",
        "mmdet::scnet/scnet_r50_fpn_1x_coco.py",
        "mmdet::detr/detr_r50_8xb2-150e_coco.py",
        "mmdet::mask2former/mask2former_r50_8xb2-lsj-50e_coco-panoptic.py",
        "mmdet::mask2former/mask2former_r50_8xb2-lsj-50e_coco.py",
        "mmdet::yolact/yolact_r50_1xb8-55e_coco.py",
        "mmdet::mm_grounding_dino/coco/grounding_dino_swin-t_finetune_16xb4_1x_coco.py",
        "mmdet::seesaw_loss/mask-rcnn_r50_fpn_seesaw-loss_random-ms-2x_lvis-v1.py",
        "mmseg::stdc/stdc1_4xb12-80k_cityscapes-512x1024.py",
        "mmseg::upernet/upernet_r50_4xb4-80k_ade20k-512x512.py",
        "mmseg::mask2former/mask2former_r50_8xb2-160k_ade20k-512x512.py",
        "mmseg::vpd/vpd_sd_4xb8-25k_nyu-480x480.py",
        "mmpretrain::resnet/resnet50_8xb32_in1k.py",
        "mmpretrain::vision_transformer/vit-base-p16_64xb64_in1k.py",
    ],
)
def test_the_libraries_own_heads_fit_their_data(config):
    """Their configs, and the classes that their data sets name."""
    library, name = config.split("::")
    path = Path(pytest.importorskip(library).__file__).parent / ".mim" / "configs" / name
    cfg = Config.fromfile(path)
    dataset = cfg.train_dataloader.dataset
    while "dataset" in dataset or "datasets" in dataset:
        dataset = dataset.get("dataset") or dataset.datasets[0]
    import_module(f"{library}.datasets")
    classes = (dataset.get("metainfo") or {}).get("classes") or DATASETS.get(f"{library}.{dataset.type}").METAINFO[
        "classes"
    ]
    assert len(classes) > 10
    assert check_classes(cfg.model, classes, "train_dataloader.dataset") == ""


class Pictures(torch.utils.data.Dataset):
    """What mmengine's data sets have."""

    def __init__(self, path, loader):
        self.path, self.data_root, self.data_prefix = path, "data/", dict(img="data/train/")
        self.pipeline = Compose([loader])

    def __len__(self):
        return 1

    def get_data_info(self, index):
        return dict(img_path=self.path)


def test_a_missing_first_image_is_named_with_its_settings(tmp_path):
    (tmp_path / "a.png").touch()
    loader, missing = TRANSFORMS.build(dict(type="LoadImageFromFile")), str(tmp_path / "b.png")
    check_first_image(Pictures(str(tmp_path / "a.png"), loader), "train_dataloader.dataset")
    with pytest.raises(
        FileNotFoundError, match=r"b\.png does not exist, the first one of val_dataloader\.dataset.*data/train/"
    ):
        check_first_image(torch.utils.data.ConcatDataset([Pictures(missing, loader)]), "val_dataloader.dataset")
    elsewhere = TRANSFORMS.build(dict(type="LoadImageFromFile", backend_args=dict(backend="memcached")))
    for dataset in (
        Pictures(missing, elsewhere),
        Pictures("s3://b.png", loader),
        Pictures(missing, lambda results: results),
        [],
    ):
        check_first_image(dataset, "val_dataloader.dataset")


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
        (
            dict(neck=dict(type="YOLOV3Neck", in_channels=[64, 128, 320])),
            r"Set model\.neck\.in_channels=\[320, 128, 64\]",
        ),
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
        dict(neck=dict(type="mmdet.YOLOV3Neck", in_channels=[128, 64])),
        dict(neck=dict(type="CTResNetNeck", in_channels=128)),  # reads the last map
        dict(
            neck=[dict(type="GlobalAveragePooling"), dict(type="LinearNeck", in_channels=128, out_channels=32)],
            head=dict(in_channels=32),
        ),
    ):
        check_channels(Detector(64, 128), cfg)
    check_channels(nn.Identity(), dict(neck=dict(in_channels=[1])))


@pytest.mark.parametrize("meta", [None, [], {}, {"dataset_meta": None}])
def test_shapes_that_differ_without_names_of_classes(meta):
    with pytest.raises(ValueError, match=r"weight is \[8, 4\] in the checkpoint and \[2, 4\] in the model"):
        check_shapes(nn.Linear(4, 2), {"state_dict": nn.Linear(4, 8).state_dict(), "meta": meta}, "x.pth")


def test_shapes_that_differ_are_named_with_both():
    checkpoint = {"state_dict": nn.Linear(4, 8).state_dict(), "meta": {"dataset_meta": {"classes": ("cat", "dog")}}}
    message = r"weight is \[8, 4\] in the checkpoint and \[3, 4\] in the model.*trained for 2 classes \(cat, dog\)"
    with pytest.raises(ValueError, match=f"checkpoint a.pth does not fit the config: {message}"):
        check_shapes(nn.Linear(4, 3), checkpoint, "a.pth")
    assert shape_conflicts(nn.Linear(4, 8), checkpoint) == ""
    assert shape_conflicts(nn.Linear(4, 8), {"other": torch.zeros(1)}) == ""


def test_shapes_are_compared_wherever_the_weights_are_read_from():
    """``load_weights`` also takes the entry ``model``, as many training scripts write it."""
    with pytest.raises(ValueError, match=r"weight is \[8, 4\] in the checkpoint and \[3, 4\] in the model"):
        check_shapes(nn.Linear(4, 3), {"model": nn.Linear(4, 8).state_dict(), "epoch": 3}, "a.pth")


@pytest.mark.parametrize(
    "meta",
    [
        {"dataset_meta": {"classes": ("cat", "dog")}},
        {"dataset_meta": {"CLASSES": ("cat", "dog")}},  # of mmdet's release candidates
        {"dataset_meta": [{"classes": ("cat", "dog")}, {"classes": ("dog", "newt")}]},  # of a ConcatDataset
    ],
)
def test_the_classes_that_a_checkpoint_was_trained_for(meta):
    checkpoint = {"state_dict": nn.Linear(4, 8).state_dict(), "meta": meta}
    assert saved_metainfo(checkpoint) == {"classes": ("cat", "dog")}
    with pytest.raises(ValueError, match=r"trained for 2 classes \(cat, dog\)"):
        check_shapes(nn.Linear(4, 3), checkpoint, "a.pth")


@pytest.mark.parametrize("meta", [None, [], {}, {"dataset_meta": None}, {"dataset_meta": []}, {"dataset_meta": [None]}])
def test_a_checkpoint_without_classes(meta):
    assert saved_metainfo({"meta": meta}) == saved_metainfo({}) == {}


def test_data_elsewhere_have_no_first_image_here(tmp_path):
    dataset = Pictures(str(tmp_path / "missing.png"), TRANSFORMS.build(dict(type="LoadImageFromFile")))
    dataset.backend_args = dict(backend="petrel")
    check_first_image(dataset, "val_dataloader.dataset")


def test_a_missing_root_is_named_without_the_folders_in_it():
    with pytest.raises(FileNotFoundError, match=r"folder no does not exist: .*data_root"):
        check_data(loader(data_root="no"), "train")


def test_labels_stand_for_the_same_classes():
    assert compare_classes(("a", "b", "c"), ("a", "b", "c")) == ""
    assert compare_classes(("a", "b", "c"), ("a", "b")) == ""  # the labels agree
    assert compare_classes(None, ("a",)) == compare_classes(("a",), ()) == ""
    assert "label 1 is 'b' in the training data and 'c' here" in compare_classes(("a", "b", "c"), ("a", "c"))
