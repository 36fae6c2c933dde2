"""Images and class maps from a list."""

import cv2
import numpy as np
import pytest
import torch
from mmengine.registry import DefaultScope

from mmlisa.registry import DATASETS, METRICS


@pytest.mark.parametrize(("reduce_zero_label", "expected"), [
    (False, [[0, 255], [2, 1]]),
    (True, [[255, 255], [1, 0]]),  # 0 is not a class but unlabelled, and the others move down
])  # fmt: skip
def test_a_list_of_pairs(tmp_path, reduce_zero_label, expected):
    (tmp_path / "a b").mkdir()
    cv2.imwrite(str(tmp_path / "a b" / "1.jpg"), np.zeros((2, 2, 3), np.uint8))
    cv2.imwrite(str(tmp_path / "mask of 1.png"), np.array([[0, 255], [2, 1]], np.uint8))
    (tmp_path / "list.txt").write_text("a b/1.jpg\tmask of 1.png\n")
    with DefaultScope.overwrite_default_scope("mmseg"):
        dataset = DATASETS.build(
            dict(
                type="mmlisa.PairedSegDataset",
                data_root=str(tmp_path),
                ann_file=str(tmp_path / "list.txt"),
                metainfo=dict(classes=("one", "two", "three")[: 3 - reduce_zero_label]),
                reduce_zero_label=reduce_zero_label,
                pipeline=[dict(type="LoadImageFromFile"), dict(type="mmseg.LoadAnnotations")],
            )
        )
        entry = dataset[0]
    assert entry["img_shape"] == (2, 2)
    np.testing.assert_array_equal(entry["gt_seg_map"], expected)


def test_predictions_of_images_of_the_same_name(tmp_path):
    """Each lies under the path of its image."""
    paths = dict(data_root=str(tmp_path), predictions=str(tmp_path / "predictions"))
    metric = METRICS.build(dict(type="mmlisa.PairedIoUMetric", **paths))
    metric.dataset_meta = dict(classes=("one", "two"))
    for label, name in enumerate(("a/1.jpg", "b/1.jpg")):
        values = torch.full((1, 4, 6), label)
        maps = dict(pred_sem_seg=dict(data=values), gt_sem_seg=dict(data=values))
        metric.process({}, [dict(img_path=str(tmp_path / name), **maps)])
    for label, name in enumerate(("a/1.jpg.png", "b/1.jpg.png")):
        np.testing.assert_array_equal(cv2.imread(str(tmp_path / "predictions" / name), 0), np.full((4, 6), label))
    assert metric.evaluate(2)["mIoU"] == 100


def test_the_iou_of_each_class_is_a_metric():
    """NaN, which never becomes the best, where a class is neither annotated nor predicted."""
    metric = METRICS.build(dict(type="mmlisa.IoUMetric", classwise=True))
    metric.dataset_meta = dict(classes=("one", "two", "three"))
    truth, found = torch.tensor([[0, 0, 0, 1]]), torch.tensor([[0, 0, 1, 1]])
    metric.process({}, [dict(pred_sem_seg=dict(data=found), gt_sem_seg=dict(data=truth))])
    values = metric.evaluate(1)
    assert [values["IoU.one"], values["IoU.two"]] == pytest.approx([200 / 3, 50], abs=0.01)
    assert [values["Acc.one"], values["Acc.two"]] == pytest.approx([200 / 3, 100], abs=0.01)
    assert np.isnan(values["IoU.three"])
    assert values["mIoU"] == pytest.approx(58.33, abs=0.01)
