"""Linear layers of something cheap, which the backward pass computes again instead of keeping it::

    y = function(*inputs) W^T + b

The input of a linear layer, which its weight's gradient needs, is often a norm, an activation or a depthwise convolution of
something that is kept anyway. Computing it again costs a small part of the product.
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from .precision import current_autocast
from .tracing import is_traced, is_transformed


def linear_of(
    function: Callable[..., Tensor], inputs: Sequence[Tensor | None], weight: Tensor, bias: Tensor | None = None
) -> Tensor:
    """``F.linear(function(*inputs), weight, bias)``, of which only ``inputs`` and ``weight`` are kept for the backward pass.

    Gradients of any order equal the plain form's. Tracers and transforms see the plain form.

    Args:
        function: differentiable, without randomness or state; reads no tensors that want a gradient but its arguments.
        inputs: its arguments.
        weight: ``[C_out, C_in]``.
        bias: ``[C_out]``.

    Returns:
        ``[..., C_out]`` for a function that returns ``[..., C_in]``.
    """
    if not torch.is_grad_enabled() or is_traced() or is_transformed():
        return F.linear(function(*inputs), weight, bias)
    return _LinearOf.apply(function, weight, bias, *inputs)


class _LinearOf(torch.autograd.Function):
    @staticmethod
    def forward(ctx, function: Callable[..., Tensor], weight: Tensor, bias: Tensor | None, *inputs: Tensor | None):
        ctx.function, ctx.autocast = function, current_autocast(weight.device)
        ctx.save_for_backward(weight, *inputs)
        return F.linear(function(*inputs), weight, bias)

    @staticmethod
    def backward(ctx, grad: Tensor):
        weight, *inputs = ctx.saved_tensors
        _, wants_weight, wants_bias, *wants = ctx.needs_input_grad
        is_differentiated = torch.is_grad_enabled()  # by create_graph=True
        # Not the inputs themselves: where one of them depends on another, its share would count twice.
        for i in (i for i, wanted in enumerate(wants) if wanted):
            inputs[i] = inputs[i].view_as(inputs[i]) if is_differentiated else inputs[i].detach().requires_grad_()
        with torch.set_grad_enabled(is_differentiated or any(wants)), ctx.autocast():
            x = ctx.function(*inputs)
        rows = grad.flatten(0, -2)
        d_weight = rows.mT @ x.flatten(0, -2).to(grad.dtype) if wants_weight else None
        d_bias = rows.sum(0) if wants_bias else None
        d_inputs: list[Tensor | None] = [None] * len(inputs)
        if any(wants):
            d_x = (grad @ weight.to(grad.dtype)).to(x.dtype)
            wanted = [i for i, is_wanted in enumerate(wants) if is_wanted]
            found = torch.autograd.grad(x, [inputs[i] for i in wanted], d_x, create_graph=is_differentiated)
            for i, d_input in zip(wanted, found, strict=True):
                d_inputs[i] = d_input
        return None, d_weight, d_bias, *d_inputs
