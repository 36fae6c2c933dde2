"""The simple feature pyramid against its definition, written out with PyTorch's functions."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

pytest.importorskip("mmdet")
from mmlisa.models.necks import SimpleFeaturePyramid


def layer_norm(norm: nn.Module, x: Tensor) -> Tensor:
    return F.layer_norm(x.movedim(1, -1), x.shape[1:2], norm.weight, norm.bias, norm.eps).movedim(-1, 1)


def expected(neck: SimpleFeaturePyramid, x: Tensor) -> list[Tensor]:
    first, norm, _, second, *_ = neck.levels[0]
    four = F.conv_transpose2d(x, first.weight, first.bias, stride=2)
    four = F.conv_transpose2d(F.gelu(layer_norm(norm, four)), second.weight, second.bias, stride=2)
    two = F.conv_transpose2d(x, neck.levels[1][0].weight, neck.levels[1][0].bias, stride=2)
    maps = []
    for level, y in zip(neck.levels, (four, two, x, F.max_pool2d(x, 2)), strict=True):
        narrow, norm1, smooth, norm2 = list(level)[-4:]
        y = layer_norm(norm1, F.conv2d(y, narrow.weight))
        maps.append(layer_norm(norm2, F.conv2d(y, smooth.weight, padding=1)))
    return [*maps, maps[-1][..., ::2, ::2]]


def test_five_maps_of_the_last():
    torch.manual_seed(0)
    neck = SimpleFeaturePyramid(16, 12).double()
    for parameter in neck.parameters():
        nn.init.normal_(parameter)
    x = torch.randn(2, 16, 7, 10, dtype=torch.double)
    maps = neck((torch.randn(2, 8, 14, 20), x))  # only the last is used
    assert [tuple(y.shape) for y in maps] == [(2, 12, *size) for size in ((28, 40), (14, 20), (7, 10), (3, 5), (2, 3))]
    for ours, theirs in zip(maps, expected(neck, x), strict=True):
        assert theirs.std() > 0.1
        assert torch.allclose(ours, theirs, rtol=1e-12, atol=1e-12)
