"""Operators against their formulas, in fp64, and the calls of PyTorch's operators that they make."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


def products(query: Tensor, key: Tensor) -> Tensor:
    return torch.einsum("bhid,bhjd->bhij", query, key)


def draw(shape: str, sizes: dict[str, tuple[int, ...]], generator: torch.Generator) -> Tensor:
    """A leaf whose axes are letters of ``sizes``."""
    axes = [size for letter in shape for size in sizes[letter]]
    return torch.randn(axes, generator=generator, dtype=torch.float64).requires_grad_()


def value_and_gradients(y: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    """The value, and the gradients of a sum whose weights grow from -1 to 1."""
    weights = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view(y.shape)
    return [y.detach(), *torch.autograd.grad(y, leaves, weights)]


def assert_equal(operator: Callable, formula: Callable, inputs: list[Tensor], generator: torch.Generator) -> Tensor:
    """The value and all gradients; returns the expected value."""
    y, expected = operator(*inputs), formula(*inputs)
    torch.testing.assert_close(y, expected, rtol=1e-9, atol=1e-10)
    weight = torch.randn(y.shape, generator=generator, dtype=y.dtype)
    # A zero stands for an argument that the value does not depend on, as the query of one token's softmax.
    gradients = [
        torch.autograd.grad((out * weight).sum(), inputs, allow_unused=True, materialize_grads=True)
        for out in (y, expected)
    ]
    torch.testing.assert_close(*gradients, rtol=1e-8, atol=1e-9)
    return expected


class Calls(TorchDispatchMode):
    """Keeps each call in ``calls``: the operator, its arguments, and the result."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.calls.append((function, args, result))
        return result
