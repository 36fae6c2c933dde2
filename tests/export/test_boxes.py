"""Choices between candidates: the best, and those that suppress others, also of equal scores."""

import numpy as np
import pytest
import torch
import torchvision
from torch import nn

from mmlisa.export.boxes import nms, top


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
