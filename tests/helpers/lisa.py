"""Inputs of every shape for LiSA, and the comparison of values and gradients."""

import torch

from mmlisa.ops import lisa

# B, h, c, D, grid: even, odd, prime, tall, 1-D, 3-D; one head, one pattern, odd numbers of channels and patterns
CASES = {
    "even": (2, 2, 4, 4, (6, 8)),
    "odd": (1, 3, 5, 3, (9, 7)),
    "prime-tall": (2, 1, 4, 2, (13, 3)),
    "one-of-each": (1, 1, 1, 1, (4, 5)),
    "line": (2, 2, 3, 2, (17,)),
    "video": (1, 2, 4, 3, (2, 5, 4)),
    "tiny": (1, 2, 2, 2, (1, 2)),
    "beyond-circulant": (1, 2, 4, 5, (16, 9)),
}


def make_inputs(case: str, dtype: torch.dtype = torch.float32, encoding_bias: bool = True) -> list[torch.Tensor]:
    batch, heads, c, num_patterns, grid = CASES[case]
    generator = torch.Generator().manual_seed(0)

    def randn(*shape):
        return torch.randn(shape, generator=generator, dtype=dtype).requires_grad_()

    tokens = [randn(batch, heads, c, *grid) for _ in range(3)]
    biases = [randn(c, num_patterns) for _ in range(1 + encoding_bias)]
    return [*tokens, randn(c, num_patterns, *grid), randn(num_patterns, *grid), *biases]


def value_and_gradients(inputs: list[torch.Tensor], backend: str) -> list[torch.Tensor]:
    y = lisa(*inputs, backend=backend)
    return [y, *torch.autograd.grad(y, inputs, torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view(y.shape))]


def assert_same(actual: list[torch.Tensor], expected: list[torch.Tensor], tolerance: float) -> None:
    for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
        assert a.shape == e.shape
        assert (a - e).norm() <= tolerance * e.norm(), f"tensor {i} of value and gradients"
