"""The choice of a backend is a look-up: the same for everybody, drawn from nothing, at no time."""

import pytest
import torch

from mmlisa.ops import LiSAKernels, lisa
from mmlisa.ops.lisa import dispatch
from mmlisa.ops.lisa.circulant import EncodeCirculant, MixCirculant
from mmlisa.ops.lisa.fft import EncodeFFT, MixFFT

CPU = torch.device("cpu")


def choose(grid, c=16, num_patterns=8, device=CPU):
    return dispatch.choose(device, grid, c, num_patterns)


def test_both_sides_of_the_thresholds(monkeypatch):
    monkeypatch.setitem(dispatch.THRESHOLDS, "cpu", dispatch.Thresholds({"circulant": 64}, {"circulant": 32}))
    assert choose((8, 8)) == ("circulant", "circulant")
    assert choose((5, 13)) == ("fft", "circulant")
    assert choose((13, 13)) == ("fft", "circulant")  # 169 (1 / 16 + 1 / 8) = 31.7
    assert choose((19, 9)) == ("fft", "fft")  # 32.06
    assert choose((13, 13), num_patterns=7) == ("fft", "fft")
    assert choose((13, 13), c=15) == ("fft", "fft")


@pytest.mark.parametrize("kind", ["cpu", "cuda", "mps", "xpu", "meta"])
def test_every_kind_of_device_has_a_choice(kind):
    for grid in ((1,), (7, 7), (50, 84), (4, 7, 7)):
        for name in choose(grid, device=torch.device(kind)):
            assert name in dispatch.BACKENDS


def test_exports_take_real_products(monkeypatch):
    """Small grids of known size by rows, larger and free ones by transforms of all axes."""
    monkeypatch.setattr(dispatch, "is_exporting", lambda: True)
    assert choose((14, 14)) == choose((4, 7, 7)) == ("rows", "rows")
    assert choose((28, 28)) == ("dft", "dft")
    assert choose((torch.tensor(7), 7)) == ("dft", "dft"), "a size that is no number is known only when the graph runs"


def test_the_choice_is_what_runs():
    kernels = [torch.randn(16, 8, 8, 8), torch.randn(8, 8, 8), torch.randn(16, 8)]
    prepared = LiSAKernels.prepare(*kernels)
    assert (type(prepared.encode), type(prepared.mix)) == (EncodeCirculant, MixCirculant)
    kernels = [torch.randn(16, 8, 20, 20), torch.randn(8, 20, 20), torch.randn(16, 8)]
    prepared = LiSAKernels.prepare(*kernels)
    assert (type(prepared.encode), type(prepared.mix)) == (EncodeFFT, MixFFT)


def test_nothing_is_drawn(monkeypatch):
    inputs = [torch.randn(1, 2, 4, 5, 6) for _ in range(3)]
    inputs += [torch.randn(4, 3, 5, 6), torch.randn(3, 5, 6), torch.randn(4, 3)]
    state = torch.get_rng_state()
    lisa(*inputs)
    assert torch.equal(torch.get_rng_state(), state)
