"""Heads that predict on maps give MMDetection's own results."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS
from torch import nn

from helpers.whole_models import keep
from mmlisa.export.whole import clips_boxes, find_detector
from mmlisa.runtime.masks import enlarge

ANCHORS = dict(type="AnchorGenerator", ratios=[1.0], octave_base_scale=8, scales_per_octave=1, strides=[8, 16])
SMALL = dict(num_classes=3, in_channels=16, feat_channels=16, stacked_convs=1, test_cfg=None)
NMS = dict(type="nms", iou_threshold=0.6)
TEST = dict(mask_thr_binary=0.5, nms_pre=150, min_bbox_size=0, score_thr=0.05, nms=NMS, max_per_img=100)
NORM = dict(norm_cfg=dict(type="GN", num_groups=4, requires_grad=True))
POINTS = dict(type="MlvlPointGenerator", offset=0, strides=[8, 16])
REGRESS = dict(regress_ranges=((-1, 64), (64, 1e8)), strides=[8, 16])
YOLO = dict(type="YOLOAnchorGenerator", base_sizes=[[(60, 40), (30, 50)], [(20, 10), (9, 30)]], strides=[16, 8])
BOTH = dict(in_channels=(16, 16), out_channels=(16, 16), featmap_strides=[16, 8])
SOFTMAX = dict(type="mmdet.CrossEntropyLoss", use_sigmoid=False)


@pytest.mark.parametrize(
    "options",
    [
        dict(type="RetinaHead", anchor_generator=ANCHORS),
        dict(type="RetinaHead", anchor_generator=ANCHORS, loss_cls=SOFTMAX),
        dict(type="FCOSHead", **REGRESS, **NORM),
        dict(type="ATSSHead", anchor_generator=ANCHORS, **NORM),
        dict(type="GFLHead", anchor_generator=ANCHORS, **NORM),
        dict(type="TOODHead", anchor_generator=ANCHORS, norm_cfg=NORM["norm_cfg"] | dict(num_groups=2)),
        dict(type="VFNetHead", anchor_generator=ANCHORS | dict(center_offset=0.0), **REGRESS, **NORM),
        dict(type="PAAHead", anchor_generator=ANCHORS, **NORM),
        dict(type="PAAHead", anchor_generator=ANCHORS, score_voting=False, **NORM),
        dict(type="FoveaHead", strides=[8, 16], base_edge_list=[16, 32], scale_ranges=((1, 64), (32, 256))),
        dict(type="RepPointsHead", point_feat_channels=16, point_strides=[8, 16], **NORM),
        dict(type="RTMDetInsHead", anchor_generator=POINTS, bbox_coder=dict(type="DistancePointBBoxCoder"), **NORM),
        dict(type="YOLOXHead", strides=[8, 16]),
        dict(type="YOLOV3Head", anchor_generator=YOLO, **BOTH),
    ],
    ids=lambda options: options["type"],
)
def test_dense_heads_predict_as_in_mmdetection(options):
    torch.manual_seed(0)
    maps = [torch.randn(1, 16, 12, 16), torch.randn(1, 16, 6, 8)]
    if options["type"].startswith("YOLOV3"):
        options, maps = dict(options, num_classes=3), maps[::-1]
    else:
        options = SMALL | options
    head = MODELS.build(dict(options, type=f"mmdet.{options['type']}", test_cfg=Config(dict(test=TEST)).test)).eval()
    for key, parameter in head.named_parameters():
        if parameter.ndim > 1 or key.endswith("bias"):
            nn.init.normal_(parameter, std=0.15 if parameter.ndim > 1 else 0.05)
    model = SimpleNamespace(bbox_head=head, extract_feat=lambda image: maps)
    sample = SimpleNamespace(metainfo=dict(img_shape=(90, 124), ori_shape=(112, 248), scale_factor=(0.5, 0.8)))
    with torch.no_grad():
        (expected,) = head.predict(maps, [sample])
        thresholds = torch.tensor([TEST["score_thr"], -1.0])
        boxes, scores, labels, *masks = find_detector(model)(
            model, torch.zeros(1, 3, 96, 128), torch.tensor([124.0, 90, 124, 90]), thresholds, keep
        )
    assert len(expected) > 5
    assert len(set(expected.labels.tolist())) > 1
    expected = expected[expected.scores.argsort(descending=True)]  # PAA's voting returns one class after the other
    torch.testing.assert_close(scores, expected.scores)
    # PAA's vote of a box without an area is 0 / 0.
    torch.testing.assert_close(boxes, expected.bboxes, rtol=1e-5, atol=1e-3, equal_nan=True)
    assert boxes.isfinite().all(dim=1).sum() > 5
    assert torch.equal(labels, expected.labels)
    assert clips_boxes(head) != bool((expected.bboxes > torch.tensor([125, 91, 125, 91])).any())
    for logits in masks:
        (expected,) = head.predict(maps, [sample], rescale=True)
        found = [enlarge(each.numpy(), 8, (1 / 0.8, 1 / 0.5), (112, 248)) > 0 for each in logits]
        assert (np.stack(found) != expected.masks.numpy()).mean() < 1e-3
        assert 0.1 < expected.masks.float().mean() < 0.9
