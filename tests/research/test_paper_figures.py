"""Figures of the papers: the formulas and the data that they draw."""

import math

import pytest
import torch

from research import paper_figures as figures


def test_distances_in_the_feature_space_of_the_angular_kernel():
    angle = torch.tensor([0.0, 0.3, 1.2, math.pi / 2, 3.0])
    points = torch.stack([angle.cos(), angle.sin()], dim=1) * torch.tensor([[1.0], [2], [3], [4], [5]])
    kernel = figures.angular_similarity(points.double(), points.double())
    values, vectors = torch.linalg.eigh(kernel)
    mapped = vectors * values.clamp(min=0).sqrt()
    squared = torch.cdist(mapped, mapped) ** 2
    torch.testing.assert_close(squared[0], 2 / math.pi * angle.double(), rtol=0, atol=1e-6)  # Castling-ViT, Eq. 7


@pytest.mark.parametrize(
    ("power", "scores"),
    [(1, [0.37, 0.19, 0.26, 0.18]), (3, [0.75, 0.11, 0.09, 0.05])],  # FLatten, Fig. 4
)
def test_scores_before_and_after_focusing(power, scores):
    query, keys = (figures.focus(torch.tensor(x), power) for x in (figures.QUERY, figures.KEYS))
    torch.testing.assert_close(figures.attention_scores(query, keys), torch.tensor(scores), rtol=0, atol=5e-4)
