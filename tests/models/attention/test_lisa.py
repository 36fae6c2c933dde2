"""LiSA's module around the operator: export, local kernels."""

import pytest
import torch
import torch.nn.functional as F

from mmlisa.models.attention import build_attention

GRID = (9, 8)


def test_exports_without_complex_numbers():
    operator, x = build_attention(dict(type="LiSA", num_patterns=3), 32, 2, (6, 7)).eval(), torch.randn(1, 72, 32)
    program = torch.export.export(operator, (x, GRID), strict=False)
    targets = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert not [t for t in targets if "fft" in t or "complex" in t or "mmlisa" in t]
    torch.testing.assert_close(program.module()(x, GRID), operator(x, GRID), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize("padding", ["circular", "zeros"])
def test_local_kernels_are_convolutions(padding, size):
    """Pattern by pattern, by PyTorch's depthwise convolution."""
    torch.manual_seed(0)
    cfg = dict(type="LiSA", num_patterns=3, kernel_size=size, padding=padding)
    operator, grid = build_attention(cfg, 32, 2, (8, 9)).double().eval(), (8, 9)
    operator.kernel_a.data.mul_(3)
    x = torch.randn(2, 72, 32, dtype=torch.double)
    query, key, value = operator.qkv(x).transpose(1, 2).reshape(2, 3, 2, 16, 8, 9).unbind(1)
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
