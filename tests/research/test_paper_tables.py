"""Counts beside the papers: how many agree, and that they follow from the papers' text."""

from math import log2

import pytest
import torch
from torch import nn

from mmlisa import ops
from mmlisa.models.attention import LiSA, build_attention
from mmlisa.models.backbones import LiSANet
from research import paper_tables
from research.conventions import CONVENTIONS, Counts, count
from research.paper_tables import evaluate, load_table, to_markdown

# Cells, and those that agree, differ for a known reason, differ without explanation, and cannot be compared. One unexplained cell
# more is a defect of the code until the paper says otherwise.
CELLS = {
    "castling": "68 | 46 | 9 | 4 | 0 | 5 | 4",
    "flatten": "88 | 66 | 9 | 2 | 7 | 4 | 0",
    "ivit": "45 | 21 | 2 | 6 | 1 | 12 | 3",
    "lisa": "113 | 68 | 21 | 8 | 0 | 2 | 14",
    "newer": "50 | 26 | 15 | 3 | 6 | 0 | 0",
}


EVERY_COMMIT = ("ivit",)  # the quickest


@pytest.mark.parametrize(
    "paper", [pytest.param(paper, marks=() if paper in EVERY_COMMIT else pytest.mark.nightly) for paper in CELLS]
)
def test_all_rows_of_a_paper(paper):
    table = load_table(paper)
    results = evaluate(table["tables"])
    # A reading is derived from the paper without the code.
    assert not [r for r in results if r.reading is not None and abs(r.ours - r.reading) > 0.01 * r.reading]
    assert f"\n| {CELLS[paper]} |\n" in to_markdown(table, results)


# Blocks, channels, heads of the stages with attention, and D: LiSA's Table 2, and Tables 2 and 8a of its first version.
SIZES = {
    "isotropic": ((12,), (192,), (12,), 16),
    "small": ((2, 4, 12, 4), (64, 128, 320, 384), (4, 8, 20, 24), 8),
    "base": ((4, 8, 18, 3), (96, 192, 384, 576), (6, 12, 24, 36), 8),
    "hybrid-small": ((3, 6, 12, 4), (64, 128, 320, 384), (20, 24), 8),
    "hybrid-base": ((3, 12, 18, 3), (96, 192, 384, 576), (24, 36), 8),
    "v1-isotropic": ((12,), (192,), (12,), 16),
    "v1-tiny": ((1, 2, 5, 2), (64, 128, 256, 512), (4, 8, 16, 32), 8),
    "v1-small": ((1, 2, 11, 2), (64, 128, 256, 512), (4, 8, 16, 32), 16),
    "v1-base": ((2, 3, 16, 3), (96, 192, 384, 768), (6, 12, 24, 48), 16),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes_of_lisanets(name):
    """And the MLP ratios: the journal's pyramids have those of appendix A.1, the other networks 4."""
    with torch.device("meta"):
        stages = [list(stage.blocks) for stage in LiSANet(name).stages]
    attentions = [stage[0].attn for stage in stages if isinstance(stage[0].attn, LiSA)]
    widths = tuple(stage[0].norm1.weight.numel() for stage in stages)
    (patterns,) = {attention.kernel_b.shape[0] for attention in attentions}
    assert (tuple(map(len, stages)), widths, tuple(a.num_heads for a in attentions), patterns) == SIZES[name]
    ratios = (4, 4, 3, 3) if name.endswith(("small", "base")) and "v1" not in name else (4, 4, 4, 4)
    assert [stage[0].mlp.fc1.out_features for stage in stages] == [r * w for r, w in zip(ratios, widths, strict=False)]


@pytest.mark.parametrize(
    ("quantity", "cell", "status"),
    [
        ("params", "3.0 k", "rounds to the print"),
        ("params", "2.9 k", "unexplained"),
        ("params", "2.98 k", "within 1 %"),
        ("params", "2.96 k", "unexplained"),  # 1.4 %
        ("params", dict(paper="2.9 k", note="a typo"), "unexplained"),  # a note changes nothing
        ("params", dict(paper="2.9 k", explained=True, note="a typo"), "differs for a known reason"),
        ("params", dict(paper="2.9 k", judged=False), "not comparable"),
        ("macs", "3.01 M", "within 1 %"),
        ("macs", "2.95 M", "within 3 %"),
    ],
)
def test_status(monkeypatch, quantity, cell, status):
    monkeypatch.setattr(paper_tables, "build_row", lambda row, shape: nn.Conv2d(3, 1000, 1, bias=False, device="meta"))
    rows = [{"label": "layer", quantity: cell}]
    (result,) = evaluate([dict(name="Table 1", input=[3, 10, 100], rows=rows)])
    assert (result.ours, result.status) == (pytest.approx(3.0), status)


@pytest.mark.parametrize(
    ("kernel_size", "work"),
    [
        (None, dict(product=2 * 5 * 32 * 32, fft=2 * 32 * (1 + 5) * 32 * 5)),
        (3, dict(product=2 * 5 * 32 * 32 * (1 + 9), fft=0)),
    ],
)
def test_lisa_has_the_papers_count_however_it_is_evaluated(kernel_size, work):
    operator = build_attention(dict(type="LiSA", num_patterns=5, kernel_size=kernel_size), 32, 2, (4, 8))

    class OnMap(nn.Module):
        def __init__(self):
            super().__init__()
            self.operator = operator

        def forward(self, x):
            return self.operator(x, (4, 8))

    counts = count(OnMap(), torch.randn(1, 32, 32))
    projections = 4 * 32 * 32 * 32
    assert counts.work["product"] - projections == work["product"]
    assert counts.work.get("fft", 0) == work["fft"]


def test_the_transforms_of_lisa_are_log_linear():
    """LiSA's Table 1, by the transforms that PyTorch computes, not by the formula."""

    class OnMaps(nn.Module):
        def forward(self, x):
            kernels = torch.ones(16, 8, *x.shape[3:]), torch.ones(8, *x.shape[3:]), torch.ones(16, 8)
            return ops.lisa(x, x, x, *kernels, backend="fft")

    shares = []
    for side in (7, 14, 28, 56):
        work = count(OnMaps(), torch.ones(1, 2, 16, side, side)).work["fft"]
        shares.append(work / (side**2 * log2(side**2)))
    assert shares == pytest.approx([shares[0]] * 4)


@pytest.mark.parametrize(
    ("layer", "shape", "work"),
    [
        (nn.Linear(8, 16), (2, 5, 8), dict(product=2 * 5 * 8 * 16, bias=2 * 5 * 16)),
        (nn.Conv2d(6, 4, 3, stride=2, groups=2), (1, 6, 9, 9), dict(product=4 * 16 * 3 * 9, bias=4 * 16)),
        (nn.ConvTranspose2d(6, 4, 2, stride=2), (1, 6, 5, 5), dict(product=6 * 25 * 4 * 4, bias=4 * 100)),
        (nn.Sequential(nn.LayerNorm(8), nn.BatchNorm1d(5)), (2, 5, 8), dict(norm=160)),
        (nn.Sequential(nn.ReLU(inplace=True), nn.Hardswish(), nn.GELU()), (2, 7), dict(activation=42)),
    ],
)
def test_work_of_layers(layer, shape, work):
    counts = count(layer.to("meta"), torch.empty(*shape, device="meta"))
    assert {kind: number for kind, number in counts.work.items() if number} == work


def test_conventions():
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU()).to("meta")
    counts = count(model, torch.empty(1, 3, 2, 2, device="meta"))
    assert CONVENTIONS["products"].macs(counts) == 4 * 4 * 3
    assert CONVENTIONS["all layers"].macs(counts) == 4 * 4 * 3 + 16 + 2 * 16 + 16
    assert CONVENTIONS["all layers"].params(counts) == 12 + 4 + 8
    assert CONVENTIONS["weights"].params(counts) == 12
    transforms = Counts(dict(fft=5, product=2), 0, 0)
    assert [CONVENTIONS[name].macs(transforms) for name in ("products", "products+fft")] == [2, 7]
