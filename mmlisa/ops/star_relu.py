"""StarReLU (Yu et al., "MetaFormer Baselines for Vision", Sec. 2)."""

import torch
from torch import Tensor

from .checks import check_backend
from .tracing import is_traced, is_transformed


def star_relu(x: Tensor, scale: Tensor, bias: Tensor, *, backend: str = "auto") -> Tensor:
    """``scale * relu(x)² + bias``.

    Args:
        x: ``[..., C]``.
        scale, bias: ``[1]`` each.
        backend: ``'reference'`` keeps three tensors of x's size for the backward pass, ``'auto'`` x alone.

    Raises:
        ValueError: an unknown backend.
    """
    check_backend(backend)
    if backend == "reference" or not torch.is_grad_enabled() or is_traced() or is_transformed():
        return torch.addcmul(bias, scale, x.relu().square())
    return _StarReLU.apply(x, scale, bias)


class _StarReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, scale)
        return torch.addcmul(bias, scale, x.relu().square())

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, scale = ctx.saved_tensors
        wants_x, wants_scale, wants_bias = ctx.needs_input_grad
        x = x.relu()
        slope = grad * x
        return (
            slope * (2 * scale) if wants_x else None,
            (slope * x).sum().view(1) if wants_scale else None,
            grad.sum().view(1) if wants_bias else None,
        )
