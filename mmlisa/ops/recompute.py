"""Linear layers whose backward pass computes their input again instead of saving it.

The gradient of the weight needs that input. It is often a norm, an activation or a depthwise convolution of tensors that are
saved anyway, and computing it again costs a small part of the product.
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from .context import current_autocast, records_gradients


def linear_of(
    function: Callable[..., Tensor],
    inputs: Sequence[Tensor | None],
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    value: Tensor | None = None,
) -> Tensor:
    """``F.linear(function(*inputs), weight, bias)``, which saves only ``inputs`` and ``weight`` for the backward pass.

    Gradients of any order equal those of the plain form. Under tracers and transforms this is the plain form.

    Args:
        function: differentiable, without randomness or state; its arguments are the only tensors that require a gradient.
        inputs: its arguments.
        weight, bias: ``[C_out, C_in]``, ``[C_out]``.
        value: ``function(*inputs)``, if it was computed already. The gradient then flows into ``value``, not into ``inputs``.
    """
    if not records_gradients():
        return F.linear(function(*inputs) if value is None else value, weight, bias)
    return _LinearOf.apply(function, weight, bias, value, *inputs)


class _LinearOf(torch.autograd.Function):
    @staticmethod
    def forward(ctx, function, weight, bias, value, *inputs):
        ctx.function, ctx.has_value, ctx.autocast = function, value is not None, current_autocast(weight.device)
        ctx.save_for_backward(weight, *inputs)
        return F.linear(function(*inputs) if value is None else value, weight, bias)

    @staticmethod
    def backward(ctx, grad: Tensor):
        weight, *inputs = ctx.saved_tensors
        _, wants_weight, wants_bias, wants_value, *wants = ctx.needs_input_grad
        wanted = [] if ctx.has_value else [i for i, is_wanted in enumerate(wants) if is_wanted]
        is_differentiated = torch.is_grad_enabled()  # by create_graph=True
        # Not the inputs themselves: if one of them depends on another, its share would count twice.
        for i in wanted:
            inputs[i] = inputs[i].view_as(inputs[i]) if is_differentiated else inputs[i].detach().requires_grad_()
        with torch.set_grad_enabled(is_differentiated or bool(wanted)), ctx.autocast():
            x = ctx.function(*inputs)
        rows = grad.flatten(0, -2)
        d_weight = rows.mT @ x.flatten(0, -2).to(grad.dtype) if wants_weight else None
        d_bias = rows.sum(0) if wants_bias else None
        d_x = (grad @ weight.to(grad.dtype)).to(x.dtype) if wanted or wants_value else None
        d_inputs: list[Tensor | None] = [None] * len(inputs)
        if wanted:
            gradients = torch.autograd.grad(x, [inputs[i] for i in wanted], d_x, create_graph=is_differentiated)
            for i, d_input in zip(wanted, gradients, strict=True):
                d_inputs[i] = d_input
        return None, d_weight, d_bias, d_x if wants_value else None, *d_inputs
