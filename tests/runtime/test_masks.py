"""Masks: resizing, and run lengths."""

import numpy as np
import pytest
import torch
from pycocotools import mask as coco
from torch import nn

from mmlisa.runtime import Prediction, decode_mask, encode_mask, masks


@pytest.mark.parametrize("aligned", [False, True])
def test_maps_are_resized_as_in_mmsegmentation(aligned):
    torch.manual_seed(0)
    maps = torch.randn(1, 4, 9, 13)
    resized = nn.functional.interpolate(maps, (31, 50), mode="bilinear", align_corners=aligned)
    found = masks.best_class(maps[0].numpy(), (31, 50), aligned)
    assert (found == resized[0].argmax(0).numpy()).mean() > 0.97  # OpenCV rounds the weights of aligned corners


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 1.0])
def test_run_lengths_are_cocos(share):
    rng = np.random.default_rng(0)
    for height, width in rng.integers(1, 80, (30, 2)):
        mask = rng.random((height, width)) < share
        expected = coco.encode(np.asfortranarray(mask, np.uint8))
        assert encode_mask([(0, 0, mask)], mask.shape)["counts"] == expected["counts"].decode()
        np.testing.assert_array_equal(decode_mask(expected), mask)
    whole = np.zeros((500, 400), bool)
    whole[100:180, 200:280] = part = rng.random((80, 80)) < 0.5
    expected = coco.encode(np.asfortranarray(whole, np.uint8))["counts"].decode()
    assert encode_mask([(200, 100, part)], whole.shape)["counts"] == expected


def test_a_prediction_shows_its_shapes():
    whole = Prediction(boxes=np.zeros((2, 4)), masks=[{}, {}])
    assert repr(whole) == "Prediction(boxes [2, 4], masks [2])"
    assert repr(Prediction(probabilities=np.zeros(3))) == "Prediction(probabilities [3])"
