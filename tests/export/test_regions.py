"""Heads that look at regions give MMDetection's own results."""

from pathlib import Path
from types import SimpleNamespace

import mmdet
import torch
from mmdet.structures import DetDataSample
from mmengine.registry import MODELS

from helpers.whole_models import keep
from mmlisa.export.whole import find_detector
from mmlisa.training.config import load_config


def test_learned_boxes_are_refined_as_in_mmdetection():
    torch.manual_seed(0)
    cfg = load_config(Path(mmdet.__file__).parent / ".mim/configs/sparse_rcnn/sparse-rcnn_r50_fpn_1x_coco.py").model
    two = dict(
        num_stages=2, stage_loss_weights=[1, 1], bbox_head=cfg.roi_head.bbox_head[:2], test_cfg=cfg.test_cfg.rcnn
    )
    roi, rpn = (MODELS.build(dict(part, _scope_="mmdet")) for part in (cfg.roi_head | two, cfg.rpn_head))
    rpn.init_weights()
    roi.bbox_head[1].fc_cls.weight.data.mul_(3)  # against equal scores
    maps = [torch.randn(1, 256, 24 // 2**level, 32 // 2**level) for level in range(4)]
    model = SimpleNamespace(rpn_head=rpn, roi_head=roi.eval(), extract_feat=lambda image: maps)
    sample = DetDataSample(metainfo=dict(img_shape=(90, 124)))
    with torch.no_grad():
        (expected,) = roi.predict(maps, rpn.predict(maps, [sample]), [sample])
        boxes, scores, labels = find_detector(model)(model, None, torch.tensor([124.0, 90, 124, 90]), (), keep)
    expected = expected[expected.scores.argsort(descending=True)]
    torch.testing.assert_close(scores, expected.scores)
    torch.testing.assert_close(boxes, expected.bboxes, rtol=1e-5, atol=1e-3)
    assert torch.equal(labels, expected.labels)
    assert expected.bboxes.std() > 10
