"""Heads that look at queries."""

import torch
from torch import nn

from helpers.whole_models import build, image
from mmlisa.export.whole import EndToEnd


def test_boxes_of_queries_lie_in_the_image():
    module = EndToEnd(build("dino_ivit"))
    padded, limits = module.preprocess(image() / 64 - 2)
    padded = nn.functional.pad(padded, (0, 2, 0, 10))
    with torch.no_grad():
        found, *_ = module(padded, limits)
        whole, *_ = module(padded, torch.tensor([192.0, 160.0, 192.0, 160.0]))
    torch.testing.assert_close(found, torch.minimum(whole, limits))
    assert (found < whole - 1).any()
