"""LiSA's local kernels, other grids and three axes."""

import pytest
import torch
import torch.nn.functional as F

from mmlisa.models.attention import build_attention


def lisa(grid, **options):
    torch.manual_seed(0)
    operator = build_attention(dict(type="LiSA", num_patterns=3, **options), 32, 2, grid).double().eval()
    with torch.no_grad():
        operator.kernel_a.mul_(3)
    return operator


@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize("padding", ["circular", "zeros"])
def test_local_kernels_are_convolutions(padding, size):
    """Pattern by pattern, by PyTorch's depthwise convolution."""
    operator, grid = lisa((8, 9), kernel_size=size, padding=padding), (8, 9)
    x = torch.randn(2, 72, 32, dtype=torch.double)
    qkv = operator.qkv(x).transpose(1, 2).reshape(2, 3, 2, 16, 8, 9)
    query, key, value = qkv.unbind(1)
    query, key = F.normalize(query, dim=2), F.normalize(key, dim=2)

    def convolve(maps, kernels):  # conv2d correlates: the taps are turned around the origin
        taps = torch.fft.fftshift(kernels, dim=(-2, -1)).flip(-2, -1)[:, None]
        padded = F.pad(maps.flatten(0, 1), (size // 2,) * 4, mode="circular" if padding == "circular" else "constant")
        return F.conv2d(padded, taps, groups=taps.shape[0]).unflatten(0, maps.shape[:2])

    y = 0
    for d in range(3):
        pattern = (query * convolve(key, operator.kernel_a[:, d])).sum(2, keepdim=True)
        encoded = convolve(value, operator.kernel_b[d].expand(16, size, size))
        y = y + pattern * (encoded + operator.bias[:, d, None, None])
    y = y.reshape(2, 32, 72).transpose(1, 2)
    torch.testing.assert_close(operator(x, grid), operator.proj(operator.norm(y)))
