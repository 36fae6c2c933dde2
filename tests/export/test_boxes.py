"""Suppression."""

import torch

from mmlisa.export.boxes import nms


def test_nothing_is_found_in_nothing():
    """Candidates below the threshold leave empty results and no error."""
    candidates = (torch.rand(5, 4), torch.full((5,), 0.01), torch.zeros(5, dtype=torch.long))
    boxes, scores, labels = nms(candidates, dict(nms=dict(type="nms", iou_threshold=0.5), max_per_img=3), 0.5)
    assert boxes.shape == (0, 4)
    assert len(scores) == len(labels) == 0
