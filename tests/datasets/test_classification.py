"""ImageNet-V2's numbered folders, and accuracy on ImageNet's reassessed labels."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from mmlisa.registry import DATASETS, METRICS

pytest.importorskip("mmpretrain")


def test_a_folder_of_imagenet_v2_is_named_after_its_label(tmp_path):
    for name in ("0", "1", "2", "10"):
        (tmp_path / name).mkdir()
        Image.fromarray(np.zeros((2, 2, 3), np.uint8)).save(tmp_path / name / "a1b2.jpeg")
    dataset = DATASETS.build(dict(type="NumberedFolders", data_root=str(tmp_path), data_prefix="", pipeline=[]))
    labels = {
        dataset.get_data_info(i)["img_path"].split("/")[-2]: dataset.get_data_info(i)["gt_label"] for i in range(4)
    }
    assert labels == {"0": 0, "1": 1, "2": 2, "10": 10}
    assert dataset.metainfo["classes"] == ("0", "1", "2", "10")


def test_a_prediction_is_right_if_it_is_one_of_the_reassessed_labels(tmp_path):
    (tmp_path / "real.json").write_text(json.dumps([[2], [], [0, 1], [1]]))
    metric = METRICS.build(dict(type="RealAccuracy", ann_file=str(tmp_path / "real.json")))
    for number, predicted in ((1, 2), (2, 0), (3, 1), (4, 0)):  # right, not counted, right, wrong
        scores = torch.eye(3)[predicted]
        sample = dict(img_path=f"val/n01440764/ILSVRC2012_val_{number:08d}.JPEG", pred_score=scores)
        metric.process(None, [sample])
    assert metric.evaluate(4) == {"real/top1": pytest.approx(200 / 3)}
