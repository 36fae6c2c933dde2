"""Heads give MMDetection's own results; choices between candidates, also of equal scores."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torchvision
from mmengine.config import Config
from mmengine.registry import MODELS
from torch import nn

from helpers.whole_models import build, image, keep
from mmlisa.export.heads import clips_boxes, find_detector, nms, top
from mmlisa.export.whole import EndToEnd
from mmlisa.runtime.predictions import enlarge

ANCHORS = dict(type="AnchorGenerator", ratios=[1.0], octave_base_scale=8, scales_per_octave=1, strides=[8, 16])
SMALL = dict(num_classes=3, in_channels=16, feat_channels=16, stacked_convs=1, test_cfg=None)
NMS = dict(type="nms", iou_threshold=0.6)
TEST = dict(mask_thr_binary=0.5, nms_pre=150, min_bbox_size=0, score_thr=0.05, nms=NMS, max_per_img=100)
NORM = dict(norm_cfg=dict(type="GN", num_groups=4, requires_grad=True))
POINTS = dict(type="MlvlPointGenerator", offset=0, strides=[8, 16])
REGRESS = dict(regress_ranges=((-1, 64), (64, 1e8)), strides=[8, 16])
SOFTMAX = dict(type="mmdet.CrossEntropyLoss", use_sigmoid=False)


@pytest.mark.parametrize(
    "options",
    [
        dict(type="RetinaHead", anchor_generator=ANCHORS),
        dict(type="RetinaHead", anchor_generator=ANCHORS, loss_cls=SOFTMAX),
        dict(type="FCOSHead", **REGRESS, **NORM),
        dict(type="ATSSHead", anchor_generator=ANCHORS, **NORM),
        dict(type="GFLHead", anchor_generator=ANCHORS, **NORM),
        dict(type="VFNetHead", anchor_generator=ANCHORS | dict(center_offset=0.0), **REGRESS, **NORM),
        dict(type="RTMDetInsHead", anchor_generator=POINTS, bbox_coder=dict(type="DistancePointBBoxCoder"), **NORM),
        dict(type="YOLOXHead", strides=[8, 16]),
    ],
    ids=lambda options: options["type"],
)
def test_dense_heads_predict_as_in_mmdetection(options):
    torch.manual_seed(0)
    maps = [torch.randn(1, 16, 12, 16), torch.randn(1, 16, 6, 8)]
    options = SMALL | options | dict(type=f"mmdet.{options['type']}", test_cfg=Config(dict(test=TEST)).test)
    head = MODELS.build(options).eval()
    for key, parameter in head.named_parameters():
        if parameter.ndim > 1 or key.endswith("bias"):
            nn.init.normal_(parameter, std=0.15 if parameter.ndim > 1 else 0.05)
    model = SimpleNamespace(bbox_head=head, extract_feat=lambda image: maps)
    sample = SimpleNamespace(metainfo=dict(img_shape=(90, 124), ori_shape=(112, 248), scale_factor=(0.5, 0.8)))
    with torch.no_grad():
        (expected,) = head.predict(maps, [sample])
        boxes, scores, labels, *masks = find_detector(model)(
            model, torch.zeros(1, 3, 96, 128), torch.tensor([124.0, 90, 124, 90]), torch.tensor(TEST["score_thr"]), keep
        )
    assert len(expected) > 5
    assert len(set(expected.labels.tolist())) > 1
    torch.testing.assert_close(scores, expected.scores)
    torch.testing.assert_close(boxes, expected.bboxes, rtol=1e-5, atol=1e-3)
    assert torch.equal(labels, expected.labels)
    assert clips_boxes(head) != bool((expected.bboxes > torch.tensor([125, 91, 125, 91])).any())
    for logits in masks:
        (expected,) = head.predict(maps, [sample], rescale=True)
        found = [enlarge(each.numpy(), 8, (1 / 0.8, 1 / 0.5), (112, 248)) > 0 for each in logits]
        assert (np.stack(found) != expected.masks.numpy()).mean() < 1e-3
        assert 0.1 < expected.masks.float().mean() < 0.9


def test_boxes_of_queries_lie_in_the_image():
    module = EndToEnd(build("dino_ivit"))
    padded, limits = module.preprocess(image() / 64 - 2)
    padded = nn.functional.pad(padded, (0, 2, 0, 10))
    with torch.no_grad():
        found, *_ = module(padded, limits)
        whole, *_ = module(padded, torch.tensor([192.0, 160.0, 192.0, 160.0]))
    torch.testing.assert_close(found, torch.minimum(whole, limits))
    assert (found < whole - 1).any()


class Top(nn.Module):
    def forward(self, scores):
        return top(scores, 40)


class Suppress(nn.Module):
    def forward(self, boxes, scores, labels):
        cfg = dict(nms=dict(type="nms", iou_threshold=0.5), max_per_img=30, min_bbox_size=0)
        return nms((boxes, scores, labels), cfg, 0.1)


def in_onnxruntime(module, inputs):
    onnxruntime = pytest.importorskip("onnxruntime")
    program = torch.export.export(module, inputs, strict=False)
    file = torch.onnx.export(program, dynamo=True, opset_version=18, optimize=False, verbose=False).model_proto
    session = onnxruntime.InferenceSession(file.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    return [torch.from_numpy(x) for x in session.run(None, dict(zip(names, (x.numpy() for x in inputs), strict=True)))]


@pytest.mark.parametrize("levels", [1, 3, 10**6])
def test_the_best_of_equal_scores_are_those_of_lower_index(levels):
    scores = (torch.rand(300, generator=torch.Generator().manual_seed(0)) * levels).floor() / levels
    expected = np.lexsort((np.arange(300), -scores.numpy()))[:40]
    for best, index in (top(scores, 40), in_onnxruntime(Top(), (scores,))):
        np.testing.assert_array_equal(index, expected)
        np.testing.assert_array_equal(best, scores[index])


@pytest.mark.parametrize("levels", [1, 3, 10**6])
def test_equal_candidates_suppress_those_of_higher_index(levels):
    generator = torch.Generator().manual_seed(0)
    corners, scores = torch.randint(0, 30, (200, 2), generator=generator), torch.rand(200, generator=generator)
    boxes, scores = torch.cat([corners, corners + 16], dim=1).float(), (scores * levels).ceil() / levels
    labels, kept = torch.randint(0, 2, (200,), generator=generator), []
    for index in np.lexsort((np.arange(200), -scores.numpy())):
        others = [i for i in kept if labels[i] == labels[index]]
        if scores[index] > 0.1 and not (torchvision.ops.box_iou(boxes[[index]], boxes[others]) > 0.5).any():
            kept.append(index)
    inputs = (boxes, scores, labels)
    for found in (Suppress()(*inputs), in_onnxruntime(Suppress(), inputs)):
        for part, expected in zip(found, inputs, strict=True):
            assert torch.equal(part, expected[kept[:30]])


def test_nothing_is_found_in_nothing():
    """Candidates below the threshold leave empty results and no error."""
    candidates = (torch.rand(5, 4), torch.full((5,), 0.01), torch.zeros(5, dtype=torch.long))
    boxes, scores, labels = nms(candidates, dict(nms=dict(type="nms", iou_threshold=0.5), max_per_img=3), 0.5)
    assert boxes.shape == (0, 4)
    assert len(scores) == len(labels) == 0
