"""Attention matrices against their formulas, and FLatten's claim about their rank."""

import pytest
import torch

from mmlisa.models.attention import build_attention
from mmlisa.registry import MODELS
from mmlisa.visualization.kernels import attention_rows
from mmlisa.visualization.matrices import attention_matrices, rank

GRID = (9, 10)


def build(**cfg):
    torch.manual_seed(0)
    operator = build_attention(cfg, 32, 2, GRID).double().eval()
    for parameter in operator.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return operator


def attention_matrix(operator, x):
    return attention_rows(operator, x, GRID, range(90))


@pytest.fixture
def x():
    return torch.randn(1, 90, 32, dtype=torch.double, generator=torch.Generator().manual_seed(0))


def test_the_convolution_restores_the_rank(x):
    """FLatten, Sec. 4.2: without it at most the width of a head, 16; with it all 90."""
    without = attention_matrix(build(type="FocusedLinearAttention", kernel_size=0), x)
    restored = attention_matrix(build(type="FocusedLinearAttention"), x)
    assert [rank(matrix) <= 16 for matrix in without] == [True, True]
    assert [rank(matrix) for matrix in restored] == [90, 90]
    # Rows sum to 1 (Eq. 3), up to the ε that keeps them from dividing by 0.
    torch.testing.assert_close(without.sum(-1), torch.ones(2, 90).double(), atol=1e-4, rtol=0)


def test_matrices_of_a_backbone():
    arch = dict(base="hybrid-small", depths=(1, 1, 2, 1), channels=(16, 32, 32, 48), num_heads=(1, 2, 2, 3))
    backbone = MODELS.build(dict(type="LiSANet", arch=arch, image_size=64)).eval()
    (matrix,) = attention_matrices(backbone, torch.randn(3, 64, 96), [-1]).values()
    assert matrix.shape == (3, 6, 6)
    with pytest.raises(ValueError, match="image"):
        attention_matrices(backbone, torch.randn(3, 640, 640), [0])
