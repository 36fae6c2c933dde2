"""Attention matrices against their formulas, FLatten's claim about their rank, and what is said about heads."""

import pytest
import torch
from PIL import Image

from figures.matrices import (
    attention_matrices,
    attention_matrix,
    draw_head_statistics,
    draw_matrices,
    head_statistics,
    rank,
)
from mmlisa import ops
from mmlisa.models.attention import build_attention
from mmlisa.registry import MODELS

GRID = (9, 10)


def build(grid=GRID, **cfg):
    torch.manual_seed(0)
    operator = build_attention(cfg, 32, 2, grid).double().eval()
    for parameter in operator.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return operator


@pytest.fixture
def x():
    return torch.randn(1, 90, 32, dtype=torch.double, generator=torch.Generator().manual_seed(0))


def test_of_softmax(x):
    operator = build(type="SoftmaxAttention")
    query, key, _ = (t.unflatten(2, (2, 16)).transpose(1, 2)[0] for t in operator.qkv(x).chunk(3, dim=2))
    expected = (query @ key.transpose(1, 2) / 4).softmax(-1)
    torch.testing.assert_close(attention_matrix(operator, x, GRID), expected)


def test_of_interactive_attention_it_is_the_product_of_its_two(x):
    operator = build(type="InteractiveAttention", landmarks=4)
    query, key, _ = (t.unflatten(2, (2, 16)).transpose(1, 2) for t in operator.qkv(x).chunk(3, dim=2))
    values = torch.eye(90, dtype=torch.double).expand(1, 2, 90, 90)
    mixes = [(getattr(operator, f"mix_{b}_before"), getattr(operator, f"mix_{b}_after")) for b in ("query", "key")]
    pad = torch.zeros(1, 2, 90, 74, dtype=torch.double)  # heads as wide as the values
    query, key = (torch.cat([t * (90 / 16) ** 0.25, pad], -1) for t in (query, key))
    expected = ops.interactive(query, key, values, GRID, 4, mix_query=mixes[0], mix_key=mixes[1], backend="reference")
    torch.testing.assert_close(attention_matrix(operator, x, GRID), expected[0])


def test_the_convolution_restores_the_rank(x):
    """FLatten, Sec. 4.2: without it at most the width of a head, 16; with it all 90."""
    without = build(type="FocusedLinearAttention", kernel_size=0)
    restored = build(type="FocusedLinearAttention")
    assert [rank(m) <= 16 for m in attention_matrix(without, x, GRID)] == [True, True]
    assert [rank(m) for m in attention_matrix(restored, x, GRID)] == [90, 90]
    # Rows sum to 1 (Eq. 3), up to the ε that keeps them from dividing by 0.
    torch.testing.assert_close(
        attention_matrix(without, x, GRID).sum(-1), torch.ones(2, 90).double(), atol=1e-4, rtol=0
    )


def test_no_matrix_without_values_of_their_own_for_all_tokens(x):
    assert attention_matrix(build(type="DepthwiseConv", kernel_size=3), x, GRID) is None
    assert attention_matrix(build(type="FocusedLinearAttention", window=3), x, GRID) is None


def test_head_statistics():
    same = torch.full((3, 4, 4), 0.25)
    assert head_statistics(same) == (0.0, pytest.approx(1.0))
    apart = torch.stack([torch.eye(4), torch.eye(4).flip(0)])
    assert head_statistics(apart).similarity == 0.0
    # Over two heads a weight times 4 is 4 and 0 in 8 of 16 places: a variance of 4 there, 0 elsewhere.
    assert head_statistics(apart).variance == pytest.approx(2.0)
    assert head_statistics(torch.eye(4)[None]).similarity == 1.0


def test_matrices_of_a_backbone(tmp_path):
    narrow = dict(depths=(1, 1, 2, 1), channels=(16, 32, 32, 48), num_heads=(1, 2, 2, 3))
    torch.manual_seed(0)
    backbone = MODELS.build(dict(type="LiSANet", arch=dict(base="hybrid-small", **narrow), image_size=64)).eval()
    image = torch.randn(3, 64, 96)
    matrices = attention_matrices(backbone, image)
    assert {name: tuple(m.shape) for name, m in matrices.items()} == {
        "stages.2.blocks.0.attn": (2, 24, 24),
        "stages.2.blocks.1.attn": (2, 24, 24),
        "stages.3.blocks.0.attn": (3, 6, 6),
    }
    assert list(attention_matrices(backbone, image, [-1])) == ["stages.3.blocks.0.attn"]
    draw_matrices({"one": matrices, "two": dict(list(matrices.items())[:1])}, 1, tmp_path / "new" / "matrices.png")
    draw_head_statistics({"one": matrices}, tmp_path / "heads.png")
    for name in ("new/matrices.png", "heads.png"):
        with Image.open(tmp_path / name) as picture:
            assert min(picture.size) > 400
    with pytest.raises(ValueError, match="1600 tokens on its grid"):
        attention_matrices(backbone, torch.randn(3, 640, 640), [0])
