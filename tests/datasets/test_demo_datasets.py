"""The demo data through the OpenMMLab packages."""

import os

import numpy as np
import pytest

from mmlisa.datasets import demo
from mmlisa.datasets.demo_objects import CLASSES
from mmlisa.registry import DATASETS


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
