"""The figures that matplotlib saves during a test, to look at what they show."""

import pytest
from matplotlib.figure import Figure


@pytest.fixture
def figures(monkeypatch) -> list[Figure]:
    saved = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *args, **kwargs: saved.append(figure))
    return saved
