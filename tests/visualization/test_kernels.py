"""Attention kernels and matrices against their formulas, FLatten's claim about ranks, and that pictures show kernels."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from mmlisa import ops
from mmlisa.models.attention import OPERATORS, build_attention
from mmlisa.registry import MODELS
from mmlisa.visualization.kernels import (
    attention_kernel,
    attention_kernels,
    attention_matrices,
    attention_rows,
    draw_kernels,
    find_operators,
    rank,
)

GRID = (5, 6)


def build(**cfg):
    torch.manual_seed(0)
    return build_attention(cfg, 32, 2, GRID).double().eval()


@pytest.fixture
def x():
    return torch.randn(1, 30, 32, dtype=torch.double)


def heads(operator, x):
    return [t.unflatten(2, (2, 16)).transpose(1, 2)[0] for t in operator.qkv(x).chunk(3, dim=2)]


@pytest.mark.parametrize("prefix", [0, 1])
def test_kernel_of_softmax_is_a_row_of_its_weights(x, prefix):
    operator = build(type="SoftmaxAttention")
    x = torch.cat([torch.randn(1, prefix, 32, dtype=torch.double), x], dim=1)
    query, key, _ = heads(operator, x)
    weights = (query @ key.transpose(1, 2) / 4).softmax(-1)
    kernel = attention_kernel(operator, x, GRID, 13)
    torch.testing.assert_close(kernel.flatten(1), weights[:, prefix + 13, prefix:])


def test_kernel_of_lisa_is_its_patterns_times_its_kernels(x):
    """sum_d s_d W^b_d at the cyclic offsets, with s_d from the definition."""
    operator = build(type="LiSA", num_patterns=3)
    query, key, _ = heads(operator, x)
    query, key = F.normalize(query, dim=2), F.normalize(key, dim=2)
    encoded = torch.einsum("hnc,cdn->hcd", key, ops.circulant(operator.kernel_a, GRID)[:, :, 13])
    pattern = torch.einsum("hc,hcd->hd", query[:, 13], encoded)
    expected = torch.einsum("hd,dj->hj", pattern, ops.circulant(operator.kernel_b, GRID)[:, 13])
    torch.testing.assert_close(attention_kernel(operator, x, GRID, 13).flatten(1), expected)


def test_the_gate_behind_an_attention_is_left_out(x):
    operator = build(type="RALAAttention")
    for parameter in operator.lepe.parameters():
        torch.nn.init.zeros_(parameter)  # the convolution has other weights for each channel
    query, key, value = (t[None] for t in heads(operator, x))
    expected = operator.attend(query, key, value, GRID)[0, :, 13]
    kernel = attention_kernel(operator, x, GRID, 13).flatten(1)
    torch.testing.assert_close((kernel[:, None] @ value[0])[:, 0], expected)


def test_every_operator_of_the_registry_has_a_kernel(x):
    assert len(OPERATORS) > 10
    for name in OPERATORS:
        kernel = attention_kernel(build(type=name), x, GRID, 13)
        assert kernel.shape[1:] == GRID, name
        assert kernel.isfinite().all(), name
        assert kernel.any(), name


@pytest.mark.parametrize(("out_indices", "names"), [((0, 1, 2, 3), ["2.0", "2.1", "3.0"]), ((0, 2), ["2.0", "2.1"])])
def test_kernels_of_a_backbone(out_indices, names):
    """Stages behind the last map never run."""
    arch = dict(base="hybrid-small", depths=(1, 1, 2, 1), channels=(16, 32, 32, 48), num_heads=(1, 2, 2, 3))
    backbone = MODELS.build(dict(type="LiSANet", arch=arch, image_size=64, out_indices=out_indices)).eval()
    assert list(find_operators(backbone)) == ["stages.{}.blocks.{}.attn".format(*name.split(".")) for name in names]
    kernels = attention_kernels(backbone, torch.randn(3, 64, 96), [0], [(0.5, 0.5), (0.0, 1.0)])
    assert {name: tuple(kernel.shape) for name, kernel in kernels.items()} == {"stages.2.blocks.0.attn": (2, 2, 4, 6)}
    with pytest.raises(ValueError, match="layers"):
        attention_kernels(backbone, torch.randn(3, 64, 64), [3], [(0.5, 0.5)])
    (matrix,) = attention_matrices(backbone, torch.randn(3, 64, 96), [-1]).values()
    assert matrix.shape == ((3, 6, 6) if len(names) == 3 else (2, 24, 24))
    with pytest.raises(ValueError, match="image"):
        attention_matrices(backbone, torch.randn(3, 640, 640), [0])


def test_the_convolution_restores_the_rank():
    """FLatten, Sec. 4.2: without it at most the width of a head, 16; with it all 90 tokens."""
    x, matrices = torch.randn(1, 90, 32, dtype=torch.double, generator=torch.Generator().manual_seed(0)), []
    for kernel_size in (0, 5):
        operator = build(type="FocusedLinearAttention", kernel_size=kernel_size)
        for parameter in operator.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        matrices.append(attention_rows(operator, x, (9, 10), range(90)))
    assert [rank(matrix) <= 16 for matrix in matrices[0]] == [True, True]
    assert [rank(matrix) for matrix in matrices[1]] == [90, 90]
    # Rows sum to 1 (Eq. 3), up to the ε that keeps them from dividing by 0.
    torch.testing.assert_close(matrices[0].sum(-1), torch.ones(2, 90).double(), atol=1e-4, rtol=0)


def test_a_drawn_kernel(figures):
    """The weights over the largest lie on the faded picture with signs and opacity; a ring marks the query."""
    kernel = torch.zeros(2, 2, 4, 8)
    kernel[1, 1, 0, 1], kernel[1, 1, 3, 6] = 0.02, -0.01
    picture, queries = torch.full((3, 40, 80), 100, dtype=torch.uint8), [(0.0, 0.0), (0.5, 0.25)]
    draw_kernels(picture, queries, [("net", {"layer": kernel})], [1, 2], "kernels.png")
    whole, drawn, empty = figures[0].axes[3:]
    assert not empty.images
    grey, over = drawn.images
    assert (grey.get_array() == 100).all()
    np.testing.assert_allclose(over.get_array(), kernel[1, 1] / 0.02)
    np.testing.assert_allclose(over.get_alpha(), (kernel[1, 1] / 0.02).abs())
    assert tuple(over.get_extent()) == (0, 80, 40, 0)
    red, blue = (over.cmap(over.norm(value))[:3] for value in (1, -1))
    assert red[0] > red[2]
    assert blue[2] > blue[0]
    for axis in (whole, drawn):
        assert axis.collections[0].get_offsets().tolist() == [[20, 20]] * 2
