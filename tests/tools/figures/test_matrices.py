"""Attention matrices against their formulas, and FLatten's claim about their rank."""

import pytest
import torch

from figures.kernels import attention_rows
from figures.matrices import attention_matrices, draw_matrices, rank
from mmlisa import ops
from mmlisa.models.attention import build_attention
from mmlisa.registry import MODELS

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


def test_of_interactive_attention_it_is_the_product_of_its_two(x):
    operator = build(type="InteractiveAttention", landmarks=4)
    query, key, _ = (t.unflatten(2, (2, 16)).transpose(1, 2) for t in operator.qkv(x).chunk(3, dim=2))
    values = torch.eye(90, dtype=torch.double).expand(1, 2, 90, 90)
    mixes = [(getattr(operator, f"mix_{b}_before"), getattr(operator, f"mix_{b}_after")) for b in ("query", "key")]
    pad = torch.zeros(1, 2, 90, 74, dtype=torch.double)  # heads as wide as the values
    query, key = (torch.cat([t * (90 / 16) ** 0.25, pad], -1) for t in (query, key))
    expected = ops.interactive(query, key, values, GRID, 4, mix_query=mixes[0], mix_key=mixes[1], backend="reference")
    torch.testing.assert_close(attention_matrix(operator, x), expected[0])


def test_the_convolution_restores_the_rank(x):
    """FLatten, Sec. 4.2: without it at most the width of a head, 16; with it all 90."""
    without = attention_matrix(build(type="FocusedLinearAttention", kernel_size=0), x)
    restored = attention_matrix(build(type="FocusedLinearAttention"), x)
    assert [rank(matrix) <= 16 for matrix in without] == [True, True]
    assert [rank(matrix) for matrix in restored] == [90, 90]
    # Rows sum to 1 (Eq. 3), up to the ε that keeps them from dividing by 0.
    torch.testing.assert_close(without.sum(-1), torch.ones(2, 90).double(), atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    "cfg", [dict(type="DepthwiseConv", kernel_size=3), dict(type="FocusedLinearAttention", window=3)]
)
def test_no_matrix_without_values_of_their_own_for_all_tokens(x, cfg):
    assert attention_matrix(build(**cfg), x) is None


def test_rank():
    assert rank(torch.ones(5, 5)) == 1
    assert rank(torch.diag(torch.tensor([1.0, 1e-9, 0.5]))) == 2


def test_matrices_of_a_backbone():
    arch = dict(base="hybrid-small", depths=(1, 1, 2, 1), channels=(16, 32, 32, 48), num_heads=(1, 2, 2, 3))
    backbone = MODELS.build(dict(type="LiSANet", arch=arch, image_size=64)).eval()
    (matrix,) = attention_matrices(backbone, torch.randn(3, 64, 96), [-1]).values()
    assert matrix.shape == (3, 6, 6)
    with pytest.raises(ValueError, match="image"):
        attention_matrices(backbone, torch.randn(3, 640, 640), [0])


def test_a_matrix_is_drawn_by_column_of_its_network_and_row_of_its_layer(figures, tmp_path):
    """Rows of a picture are queries, its columns keys."""
    first, second = torch.rand(2, 5, 5), torch.rand(2, 5, 5).triu()
    draw_matrices({"one": {"a": first, "b": second}, "two": {"a": second}}, 1, tmp_path / "matrices.png")
    panels = [axes for axes in figures[0].axes if axes.get_title()]
    assert [axes.get_title().splitlines()[0] for axes in panels] == ["one", "two", "one"]
    shown = [torch.tensor(axes.images[0].get_array().data) for axes in panels]
    torch.testing.assert_close(shown, [first[1], second[1], second[1]])
