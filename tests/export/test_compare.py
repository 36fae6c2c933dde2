"""Comparison of files with their models."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from mmlisa.export.compare import largest_difference
from mmlisa.export.whole import EndToEnd


class Detector(EndToEnd):
    """Detections that do not depend on the image."""

    def __init__(self, *outputs):
        nn.Module.__init__(self)
        self.task, self.preprocess, self.found = "detection", SimpleNamespace(uint8=False), outputs

    def forward(self, image):
        return self.found


FOUND = (
    torch.tensor([[8.0, 4, 40, 36], [0, 0, 9, 9]]),
    torch.tensor([0.9, 0.5]),
    torch.tensor([1, 0]),
    torch.rand(2, 5, 5),
)


NOTHING = tuple(part[:0] for part in FOUND)


@pytest.mark.parametrize(
    ("part", "change", "difference"),
    [(0, 9.6, 0.1), (1, np.nan, np.nan), (2, 0, 0.0), (2, 5, 1.0), (3, 0.25, 0.25)],
)
def test_each_part_of_the_detections_is_compared(part, change, difference):
    found = [output.clone() for output in FOUND]
    found[part] += change
    different = largest_difference(Detector(*FOUND), lambda image: found, (64, 96))
    assert different == pytest.approx(difference, abs=1e-5, nan_ok=True)


def test_no_detections_prove_nothing():
    assert largest_difference(Detector(*NOTHING), lambda image: NOTHING, (64, 96)) is None
    assert largest_difference(Detector(*NOTHING), lambda image: FOUND, (64, 96)) == 1
    assert largest_difference(Detector(*FOUND), lambda image: NOTHING, (64, 96)) == 1
