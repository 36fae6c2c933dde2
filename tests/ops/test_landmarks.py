"""Landmarks, and what interactive attention costs; test_references.py compares it with the formula."""

import pytest
import torch
import torch.nn.functional as F

from helpers.formulas import Calls
from mmlisa.ops import interactive, pool_landmarks


def tokens(heads=3, n=77, width=4, dtype=torch.float32, batch=2):
    return [torch.randn(batch, heads, n, width, dtype=dtype, requires_grad=True) for _ in range(3)]


def mixings(heads=3):
    """(W1q, W2q), (W1k, W2k)."""
    matrices = torch.randn(4, heads, heads, requires_grad=True).unbind()
    return dict(mix_query=matrices[:2], mix_key=matrices[2:])


def test_landmarks_are_averages():
    x = torch.arange(16.0).reshape(1, 1, 16, 1)
    torch.testing.assert_close(pool_landmarks(x, (4, 4), 4).flatten(), torch.tensor([2.5, 4.5, 10.5, 12.5]))
    assert pool_landmarks(x, (4, 4), 16).data_ptr() == x.data_ptr()
    prefixed = torch.cat([torch.full((1, 1, 1, 1), 1e6), x], dim=2)
    torch.testing.assert_close(pool_landmarks(prefixed, (4, 4), 4), pool_landmarks(x, (4, 4), 4))


def test_deterministic_training_pools_by_a_product(monkeypatch):
    """PyTorch refuses the gradient of its adaptive pooling on GPUs then."""
    x = torch.randn(2, 3, 35, 4, dtype=torch.float64, requires_grad=True)
    grad = torch.randn(2, 3, 9, 4, dtype=torch.float64)
    results = []
    for deterministic in (False, True):
        monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda on=deterministic: on)
        y = pool_landmarks(x, (5, 7), 9)
        results.append((y.detach(), *torch.autograd.grad(y, x, grad)))
        monkeypatch.setattr(F, "adaptive_avg_pool2d", None)
    torch.testing.assert_close(*results)


def test_nothing_quadratic_exists():
    inputs, mixing = tokens(heads=2, n=40 * 40, width=8, batch=1), mixings(heads=2)
    with Calls() as seen:
        interactive(*inputs, (40, 40), 16, **mixing).sum().backward()
    assert max(y.numel() for _, _, y in seen.calls if isinstance(y, torch.Tensor)) == 2 * 1600 * 16


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_softmax_is_fp32(dtype):
    """Under autocast as well as with half-precision tensors, and the result comes back in the dtype of the value."""
    inputs, mixing = tokens(dtype=dtype), mixings()
    with Calls() as seen:
        y = interactive(*inputs, (7, 11), 9, **mixing)
        with torch.autocast("cpu", dtype=dtype):
            y_autocast = interactive(*(x.float() for x in inputs), (7, 11), 9, **mixing)
    assert (y.dtype, y_autocast.dtype) == (dtype, torch.float32)
    assert {y.dtype for function, _, y in seen.calls if "softmax" in function.__name__} == {torch.float32}


def test_errors_name_the_argument():
    query, key, value = tokens()
    for grid, landmarks, options, name in (
        ((7, 11), 50, {}, "landmarks"),
        ((8, 11), 9, {}, "N=77"),
        ((7, 11), 9, dict(mix_key=(torch.eye(2), None)), "mix_key"),
    ):
        with pytest.raises(ValueError, match=name):
            interactive(query, key, value, grid, landmarks, **options)


def test_exported_windows_follow_the_grid():
    """One exported pooling gives the windows of adaptive pooling on grids with every remainder, and on the landmark grid."""

    class Pool(torch.nn.Module):
        def forward(self, maps):
            return pool_landmarks(maps.flatten(2, 3), maps.shape[2:4], 9)

    free = {"maps": {2: torch.export.Dim.DYNAMIC, 3: torch.export.Dim.DYNAMIC}}
    program = torch.export.export(Pool(), (torch.randn(1, 2, 6, 8, 4),), dynamic_shapes=free, strict=False).module()
    for grid in ((6, 8), (3, 3), (7, 7), (10, 5), (2, 11)):
        maps = torch.randn(1, 2, *grid, 4)
        expected = F.adaptive_avg_pool2d(maps[0].movedim(-1, 1), 3).flatten(2).transpose(1, 2)
        torch.testing.assert_close(program(maps)[0], expected)
