"""The papers' figures that need no trained weights."""

import pytest

from research import paper_figures
from research.paper_figures import FIGURES


@pytest.mark.parametrize(("paper", "name"), [(paper, name) for paper in FIGURES for name in FIGURES[paper]])
def test_a_figure(paper, name, monkeypatch, tmp_path):
    monkeypatch.setattr(paper_figures, "STEPS", (0, 10))
    FIGURES[paper][name](tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000
