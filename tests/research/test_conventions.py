import torch
from torch import nn

from mmlisa.complexity import Complexity, count
from research.conventions import CONVENTIONS


def test_conventions():
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU()).to("meta")
    counts = count(model, torch.empty(1, 3, 2, 2, device="meta"))
    assert CONVENTIONS["products"].macs(counts) == counts.macs() == 4 * 4 * 3
    assert CONVENTIONS["all layers"].macs(counts) == 4 * 4 * 3 + 16 + 2 * 16 + 16
    assert CONVENTIONS["all layers"].params(counts) == 12 + 4 + 8
    assert CONVENTIONS["weights"].params(counts) == 12
    assert set(CONVENTIONS) == {"products", "products+fft", "all layers", "weights"}


def test_transforms_count_under_their_own_convention_only():
    counts = Complexity(dict(fft=5, conv=2), 0, 0)
    assert [CONVENTIONS[name].macs(counts) for name in ("products", "products+fft")] == [2, 7]
