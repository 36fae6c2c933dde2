"""The demo data through the OpenMMLab packages, and the small folders in real data sets' layouts."""

import os

import numpy as np
import pytest

from helpers import layouts
from mmlisa.datasets import demo
from mmlisa.datasets.demo_objects import CLASSES
from mmlisa.registry import DATASETS

# What an object is called in a real vocabulary, and where ADE20K's list has it.
ADE20K_NAMES = dict(
    background="wall", person="person", cat="animal", cup="glass", coin="plate", flower="flower", motorcycle="minibike",
    quokka="animal", rocket="airplane",
)  # fmt: skip


@pytest.fixture
def few(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "NUM_IMAGES", {"train": 8, "val": 8})


def test_detection_dataset_makes_its_data(few):
    pytest.importorskip("mmdet")
    pipeline = [
        dict(type="mmdet.LoadImageFromFile"),
        dict(type="mmdet.LoadAnnotations", with_bbox=True, with_mask=True),
        dict(type="mmdet.PackDetInputs"),
    ]
    config = dict(
        type="DemoCocoDataset",
        data_root="data/demo/",
        ann_file="annotations/instances_train.json",
        data_prefix=dict(img="train/"),
    )
    dataset = DATASETS.build({**config, "pipeline": pipeline})
    assert os.path.isdir("data/demo")
    assert len(dataset) == 8
    assert dataset.metainfo["classes"] == CLASSES
    for sample, scene in zip(map(dataset.__getitem__, range(8)), demo.make_scenes("train", 8), strict=True):
        found = sample["data_samples"].gt_instances
        wanted = [instance for instance in scene.instances if not instance.iscrowd]
        assert found.labels.tolist() == [instance.label for instance in wanted]
        if wanted:
            np.testing.assert_array_equal(found.masks.masks.astype(bool), [instance.mask for instance in wanted])
        assert len(sample["data_samples"].ignored_instances) == len(scene.instances) - len(wanted)
    assert len(DATASETS.build({**config, "filter_cfg": dict(filter_empty_gt=True)})) == 7


def test_segmentation_dataset_makes_its_data(few):
    pytest.importorskip("mmseg")
    prefix = dict(img_path="ade/images/validation", seg_map_path="ade/annotations/validation")
    pipeline = [
        dict(type="mmseg.LoadImageFromFile"),
        dict(type="mmseg.LoadAnnotations"),
        dict(type="mmseg.PackSegInputs"),
    ]
    dataset = DATASETS.build(dict(type="DemoSegDataset", data_root="data/demo", data_prefix=prefix, pipeline=pipeline))
    assert dataset.metainfo["classes"] == ("background", *CLASSES)
    assert len(dataset.metainfo["palette"]) == len(CLASSES) + 1
    for sample, scene in zip(map(dataset.__getitem__, range(8)), demo.make_scenes("val", 8), strict=True):
        np.testing.assert_array_equal(sample["data_samples"].gt_sem_seg.data[0], scene.class_map)


def test_classification_dataset_makes_its_data(few):
    pytest.importorskip("mmpretrain")
    dataset = DATASETS.build(dict(type="DemoClsDataset", data_root="data/demo", data_prefix="cls/train"))
    assert len(dataset) == len(CLASSES)
    for sample in map(dataset.get_data_info, range(len(dataset))):
        assert os.path.basename(os.path.dirname(sample["img_path"])) == CLASSES[sample["gt_label"]]


def test_coco_layout(tmp_path):
    pytest.importorskip("mmdet")
    layouts.make_coco_layout(tmp_path / "coco", num_images=4, side=96)
    for split in ("train", "val"):
        dataset = DATASETS.build(
            dict(
                type="CocoDataset",
                data_root=str(tmp_path / "coco"),
                ann_file=f"annotations/instances_{split}2017.json",
                data_prefix=dict(img=f"{split}2017"),
                test_mode=True,
            )
        )
        assert len(dataset) == 4
        ids = dict(zip(dataset.metainfo["classes"], dataset.cat_ids, strict=True))
        # As in COCO's own files.
        assert {name: ids[name] for name in ("person", "airplane", "cat", "cup", "toothbrush")} == dict(
            person=1, airplane=5, cat=17, cup=47, toothbrush=90
        )
        for index, scene in enumerate(demo.make_scenes(split, 4, side=96)):
            labels = [dataset.metainfo["classes"][i["bbox_label"]] for i in dataset[index]["instances"]]
            assert labels == [layouts.COCO_NAMES[CLASSES[instance.label]] for instance in scene.instances]


def test_ade20k_layout(tmp_path):
    ade20k = pytest.importorskip("mmseg.datasets").ADE20KDataset
    names = ade20k.METAINFO["classes"]
    assert {name: names[index] for name, index in layouts.ADE20K_INDICES.items()} == ADE20K_NAMES
    layouts.make_ade20k_layout(tmp_path / "ade", num_images=4, side=96)
    prefix = dict(img_path="images/training", seg_map_path="annotations/training")
    pipeline = [dict(type="mmseg.LoadImageFromFile"), dict(type="mmseg.LoadAnnotations", reduce_zero_label=True)]
    dataset = ade20k(data_root=str(tmp_path / "ade"), data_prefix=prefix, pipeline=pipeline)
    for sample, scene in zip(map(dataset.__getitem__, range(4)), demo.make_scenes("train", 4, side=96), strict=True):
        indices = np.array([layouts.ADE20K_INDICES[name] for name in ("background", *CLASSES)])
        np.testing.assert_array_equal(sample["gt_seg_map"], indices[scene.class_map])
