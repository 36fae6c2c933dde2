"""The demo data sets make their data, and read from it what was composed."""

import numpy as np
import pytest

from mmlisa.datasets import demo
from mmlisa.datasets.demo_objects import CLASSES
from mmlisa.registry import DATASETS

COCO = dict(ann_file="annotations/instances_train.json", data_prefix=dict(img="train/"))
ADE = dict(img_path="ade/images/validation", seg_map_path="ade/annotations/validation")


@pytest.mark.parametrize(
    ("library", "kind", "options"),
    [
        ("mmdet", "DemoCocoDataset", dict(COCO, data_root="data/demo/")),
        ("mmseg", "DemoSegDataset", dict(data_root="data/demo", data_prefix=ADE)),
        ("mmpretrain", "DemoClsDataset", dict(data_root="data/demo", data_prefix="cls/train")),
    ],
)
def test_demo_data_set(monkeypatch, tmp_path, library, kind, options):
    pytest.importorskip(library)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "NUM_IMAGES", {"train": 8, "val": 8})
    steps = ("LoadImageFromFile", "LoadAnnotations", f"Pack{library.removeprefix('mm').capitalize()}Inputs")
    pipeline = [dict(type=f"{library}.{step}") for step in steps if library != "mmpretrain"]
    if library == "mmdet":
        pipeline[1].update(with_bbox=True, with_mask=True)
    dataset = DATASETS.build(dict(type=kind, pipeline=pipeline, **options))
    assert len(dataset) == 8
    assert tuple(dataset.metainfo["classes"]) == ("background", *CLASSES)[library != "mmseg" :]
    scenes = list(demo.make_scenes("train" if library == "mmdet" else "val", 8))
    for sample, scene in zip(map(dataset.__getitem__, range(8)), scenes, strict=True):
        if library == "mmpretrain":
            assert sample["img_path"].split("/")[-2] == CLASSES[sample["gt_label"]]
        elif library == "mmseg":
            np.testing.assert_array_equal(sample["data_samples"].gt_sem_seg.data[0], scene.class_map)
        else:  # test_demo.py compares the masks
            labels = [label for label, _, is_crowd in scene.instances() if not is_crowd]
            assert sample["data_samples"].gt_instances.labels.tolist() == labels
