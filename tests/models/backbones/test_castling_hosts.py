"""MViTv2's relative positions; tests/conversion/test_matching.py compares the hosts with timm's."""

import pytest
import torch

from mmlisa.models.backbones import CastlingMViTv2
from mmlisa.models.backbones.mvitv2 import RelativeBias


@pytest.mark.parametrize("side", [5, 8, 12])  # pretraining grid
@pytest.mark.parametrize(
    ("queries", "keys"), [((5, 8), (5, 8)), ((12, 6), (3, 2)), ((3, 5), (6, 10)), ((7, 10), (3, 4))]
)
def test_relative_positions_on_any_grid_are_mmpretrains(side, queries, keys):
    """timm's has no grid but the pretraining one."""
    mvit = pytest.importorskip("mmpretrain.models.backbones.mvit")
    torch.manual_seed(0)
    bias = RelativeBias(4, side).double()
    query = torch.randn(2, 3, queries[0] * queries[1], 4, dtype=torch.float64)
    logits = torch.zeros(2, 3, queries[0] * queries[1], keys[0] * keys[1], dtype=torch.float64)
    expected = mvit.add_decomposed_rel_pos(logits, query, queries, keys, bias.rel_pos_h, bias.rel_pos_w)
    torch.testing.assert_close(bias(query, queries, keys), expected)


@pytest.mark.parametrize("image_size", [(64, 128), (128, 64)])
def test_mvitv2s_tables_reach_over_the_longer_side(image_size):
    arch = dict(base="tiny", depths=(1, 1, 1, 1))
    found, square = (CastlingMViTv2(arch, image_size=size).state_dict() for size in (image_size, 128))
    assert {key: tensor.shape for key, tensor in found.items()} == {key: t.shape for key, t in square.items()}
    assert len(square["stages.1.downsample.attn.bias.rel_pos_w"]) == 2 * 16 - 1
