"""The choice of a backend is a look-up: the same for everybody, drawn from nothing, at no time."""

import torch

from mmlisa.ops.circular import dispatch

CPU = torch.device("cpu")


def choose(grid, c=16, num_patterns=8, device=CPU):
    return dispatch.choose(device, grid, c, num_patterns)


def test_both_sides_of_the_thresholds(monkeypatch):
    monkeypatch.setitem(dispatch.THRESHOLDS, "cpu", (64, 32))
    assert choose((8, 8)) == ("circulant", "circulant")
    assert choose((5, 13)) == ("fft", "circulant")
    assert choose((13, 13)) == ("fft", "circulant")  # 169 (1 / 16 + 1 / 8) = 31.7
    assert choose((19, 9)) == ("fft", "fft")  # 32.06
    assert choose((13, 13), num_patterns=7) == ("fft", "fft")
    assert choose((13, 13), c=15) == ("fft", "fft")


def test_exports_take_real_products(monkeypatch):
    """Small grids of known size by rows, larger and free ones by transforms of all axes."""
    monkeypatch.setattr(dispatch, "is_exporting", lambda: True)
    assert choose((14, 14)) == choose((4, 7, 7)) == ("rows", "rows")
    assert choose((28, 28)) == ("dft", "dft")
    assert choose((torch.tensor(7), 7)) == ("dft", "dft"), "a size that is no number is known only when the graph runs"
