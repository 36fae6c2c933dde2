"""Necks against their formulas, written out with PyTorch's functions."""

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("mmdet")
from torch import Tensor, nn

from helpers.networks import randomised
from mmlisa.errors import UserError
from mmlisa.models.necks import CSPPAN, LCPAN, SimpleFeaturePyramid


def unit(conv: nn.Module, x: Tensor, **options) -> Tensor:
    """Convolution without bias, batch norm in evaluation, hard swish."""
    w, bn = conv.conv.weight, conv.bn
    y = F.conv2d(x, w, **options)
    return F.hardswish(F.batch_norm(y, bn.running_mean, bn.running_var, bn.weight, bn.bias, eps=bn.eps))


def separable(block: nn.Module, x: Tensor, stride: int = 1) -> Tensor:
    y = unit(block.depthwise_conv, x, stride=stride, padding=2, groups=x.shape[1])
    return unit(block.pointwise_conv, y)


def csp(block: nn.Module, x: Tensor) -> Tensor:
    first, second, third = block.main
    y = separable(third, unit(second, unit(first, x)))
    return unit(block.merge, torch.cat([y, unit(block.short, x)], dim=1))


def lc(block: nn.Module, x: Tensor) -> Tensor:
    return separable(block[1], separable(block[0], x))


@pytest.mark.parametrize(("neck", "fuse"), [(CSPPAN, csp), (LCPAN, lc)])
def test_top_down_bottom_up_and_the_coarsest_map(neck, fuse):
    module = randomised(neck([8, 16, 24], 12)).double()
    maps = [torch.randn(2, c, h, w).double() for c, h, w in ((8, 13, 15), (16, 7, 8), (24, 4, 4))]
    c3, c4, c5 = (unit(t, x) for t, x in zip(module.transforms, maps, strict=True))
    p4 = fuse(module.top_down[0], torch.cat([F.interpolate(c5, size=(7, 8)), c4], dim=1))
    p3 = fuse(module.top_down[1], torch.cat([F.interpolate(p4, size=(13, 15)), c3], dim=1))
    n4 = fuse(module.bottom_up[0], torch.cat([separable(module.downsamples[0], p3, 2), p4], dim=1))
    n5 = fuse(module.bottom_up[1], torch.cat([separable(module.downsamples[1], n4, 2), c5], dim=1))
    n6 = separable(module.top[0], c5, 2) + separable(module.top[1], n5, 2)
    for out, expected in zip(module(maps), (p3, n4, n5, n6), strict=True):
        torch.testing.assert_close(out, expected)


def layer_norm(norm: nn.Module, x: Tensor) -> Tensor:
    return F.layer_norm(x.movedim(1, -1), x.shape[1:2], norm.weight, norm.bias, norm.eps).movedim(-1, 1)


def pyramid(neck: SimpleFeaturePyramid, x: Tensor) -> list[Tensor]:
    first, norm, _, second, *_ = neck.levels["0"]
    four = F.conv_transpose2d(x, first.weight, first.bias, stride=2)
    four = F.conv_transpose2d(F.gelu(layer_norm(norm, four)), second.weight, second.bias, stride=2)
    two = F.conv_transpose2d(x, neck.levels["1"][0].weight, neck.levels["1"][0].bias, stride=2)
    maps = []
    for level, y in zip(neck.levels.values(), (four, two, x, F.max_pool2d(x, 2)), strict=True):
        narrow, norm1, smooth, norm2 = list(level)[-4:]
        y = layer_norm(norm1, F.conv2d(y, narrow.weight))
        maps.append(layer_norm(norm2, F.conv2d(y, smooth.weight, padding=1)))
    return [*maps, maps[-1][..., ::2, ::2]]


def test_five_maps_of_the_last():
    neck = randomised(SimpleFeaturePyramid(16, 12)).double()
    x = torch.randn(2, 16, 7, 10, dtype=torch.double)
    maps = neck((torch.randn(2, 8, 14, 20), x))  # only the last is used
    assert [tuple(y.shape) for y in maps] == [(2, 12, *size) for size in ((28, 40), (14, 20), (7, 10), (3, 5), (2, 3))]
    torch.testing.assert_close(list(maps), pyramid(neck, x), rtol=1e-12, atol=1e-12)


def test_three_maps_of_the_five_have_the_same_names_of_weights():
    whole, part = randomised(SimpleFeaturePyramid(16, 12)), SimpleFeaturePyramid(16, 12, out_indices=(1, 2, 4))
    part.load_state_dict(
        {name: value for name, value in whole.state_dict().items() if not name.startswith("levels.0.")}
    )
    x = torch.randn(1, 16, 5, 6)
    torch.testing.assert_close(part((x,)), tuple(whole((x,))[i] for i in (1, 2, 4)), rtol=0, atol=0)
    with pytest.raises(UserError, match=r"out_indices=\(1, 5\)"):
        SimpleFeaturePyramid(16, out_indices=(1, 5))
