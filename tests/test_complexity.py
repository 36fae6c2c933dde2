from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mmlisa.complexity import count, forward_tables
from mmlisa.models.attention import build_attention


@pytest.mark.parametrize("grid", [(4, 8), (20, 10)])  # evaluated by circulant matrices and by FFT
@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_lisa_counts_its_contractions_over_the_patterns(grid, device):
    operator = build_attention(dict(type="LiSA", num_patterns=5), 32, 2, (4, 8)).to(device)
    n = grid[0] * grid[1]
    counts = count(operator, torch.empty(3, n, 32, device=device).normal_(), grid)
    assert counts.macs == 3 * n * (4 * 32 * 32 + 2 * 5 * 32)
    assert counts.parameters == sum(p.numel() for p in operator.parameters())


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_fused_attention_counts_its_two_products(device):
    class Attention(nn.Module):
        def forward(self, *tensors):
            return F.scaled_dot_product_attention(*tensors)

    query, key = (torch.empty(2, 3, n, 4, device=device).normal_() for n in (5, 7))
    assert count(Attention(), query, key, key).macs == 2 * 3 * 5 * 7 * (4 + 4)


def test_interactive_attention_counts_as_its_formula():
    """4 N L C + 4 N L h² + 4 N C²."""
    operator = build_attention(dict(type="InteractiveAttention", landmarks=49), 64, 4, (7, 7)).to("meta")
    counts = count(operator, torch.empty(1, 500, 64, device="meta"), (10, 50))
    assert counts.macs == 4 * 500 * (49 * 64 + 49 * 16 + 64**2)


def test_a_two_stage_detector_runs_its_heads_on_the_tables_numbers_of_boxes():
    def head(size):
        return nn.Sequential(nn.Flatten(), nn.Linear(8 * size * size, 1))

    def extractor(size):
        return SimpleNamespace(out_channels=8, roi_layers=[SimpleNamespace(output_size=(size, size))])

    detector = nn.Module()
    detector.extract_feat = lambda image: [image]
    detector.rpn_head, detector.roi_head = nn.Identity(), nn.Module()
    detector.roi_head.bbox_head = nn.ModuleList([head(7), head(7)])  # a cascade
    detector.roi_head.bbox_roi_extractor = [extractor(7), extractor(7)]
    detector.roi_head.mask_head, detector.roi_head.mask_roi_extractor = head(14), extractor(14)
    counts = count(detector.to("meta"), torch.empty(1, 3, 32, 32, device="meta"), forward=forward_tables)
    assert counts.macs == 2 * 1000 * 8 * 49 + 100 * 8 * 196
