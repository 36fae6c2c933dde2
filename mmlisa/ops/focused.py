"""Focused linear attention (Han et al., "FLatten Transformer: Vision Transformer using Focused Linear Attention", Sec. 4).

Shapes: B batch, h heads, N tokens, d channels of a head, C = h d. The norms of the focused function run over the
channels of all heads, so the operator needs all heads of a token at once::

    t    = (relu(t) + 1e-6) / softplus(scale)        t in {query, key}
    f(t) = t^p / ||t^p|| * ||t||                     Eq. 6, norms over C
    y_i  = f(q_i) sum_j f(k_j)^T v_j / (sum_j f(q_i) f(k_j)^T + N 1e-6)      per head, Eq. 4; no 1/sqrt(d)
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from mmlisa.errors import UserError

from .context import at_least_fp32, check_shape, operator, records_gradients

EPS = 1e-6
# The smallest denominator that fp32 divides and differentiates safely. Only if the norms of a query and a key have a product
# beyond 1e14, or if all keys are masked, is the denominator smaller.
_LEAST = 1e-20


@operator(one_shape=True, takes_bf16=True)
def focused_linear(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: Tensor | None = None,
    *,
    focusing_factor: float = 3,
    mask: Tensor | None = None,
    backend: str = "auto",
) -> Tensor:
    """Focused linear attention without its depthwise convolution (Eqs. 4-6), ``[B, h, N, d]``.

    Args:
        query, key, value: ``[B, h, N, d]``, projected; the key with its position added, nothing rectified yet.
        scale: ``[h, d]``, before its softplus; None divides by nothing.
        focusing_factor: p > 0; with p = 1 and no scale this is the plain linear attention of ReLU.
        mask: ``[B, N]``, True where a key counts; None counts all.
        backend: ``'reference'`` builds the N x N attention; ``'auto'`` is linear in N and finite for any finite input.
    """
    if not focusing_factor > 0:
        raise UserError(f"focusing_factor={focusing_factor}; it must be positive")
    batch, heads, n, width = query.shape
    check_shape("scale", scale, (heads, width))
    check_shape("mask", mask, (batch, n))
    return (_reference if backend == "reference" else _linear)(query, key, value, scale, focusing_factor, mask)


def _reference(
    query: Tensor, key: Tensor, value: Tensor, scale: Tensor | None, p: float, mask: Tensor | None
) -> Tensor:
    def focus(t: Tensor) -> Tensor:
        t = t.relu() + EPS
        if scale is not None:
            t = t / F.softplus(scale)[:, None]
        norm = t.pow(2).sum((1, 3), keepdim=True).sqrt()
        return t**p / t.pow(2 * p).sum((1, 3), keepdim=True).sqrt() * norm

    similarity = focus(query) @ focus(key).transpose(2, 3)
    n = similarity.shape[-1]
    if mask is not None:
        similarity = similarity * mask[:, None, None]
        n = mask.sum(1).clamp(min=1)[:, None, None, None]
    return similarity @ value / (similarity.sum(3, keepdim=True) + n * EPS)


def _linear(query: Tensor, key: Tensor, value: Tensor, scale: Tensor | None, p: float, mask: Tensor | None) -> Tensor:
    """(Σ k v) before (q k): O(N d²).

    The scales of a query and of the largest key cancel in the quotient, except in the term with epsilon. Both are therefore
    divided out of the sums, which are then of order one, and stay in that term only.
    """
    q, *q_lengths = _focus(query, scale, p)
    k, *k_lengths = _focus(key, scale, p)
    # The quotients of lengths are fp32; bf16 keeps the sums over the tokens, which matrix products add up in fp32.
    q_power_norm, q_norm, q_peak = map(at_least_fp32, q_lengths)
    k_power_norm, k_norm, k_peak = map(at_least_fp32, k_lengths)
    count = key.shape[2]
    if mask is not None:
        mask = mask[:, None, :, None].to(k_peak.dtype)
        k_peak, count = k_peak * mask, mask.sum(2, keepdim=True).clamp(min=1)
    largest = k_peak.amax(2, keepdim=True).clamp(min=_LEAST)
    k = k * (k_norm * (k_peak / largest) / k_power_norm / count).to(k.dtype)  # f(k) / (N * largest)
    denominator = q @ k.sum(2)[..., None] + EPS * q_power_norm / (q_norm * q_peak * largest)
    return q @ (k.transpose(2, 3) @ value) / denominator.clamp(min=_LEAST).to(q.dtype)


def _focus(t: Tensor, scale: Tensor | None, p: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The focused function as factors that neither overflow nor vanish.

    Divided by its largest channel m, a detached constant that the function does not depend on, a token u has channels in (0, 1]:
    f(t) = u^p / ||u^p|| * m ||u||. Returns u^p ``[B, h, N, d]``, and ||u^p||, ||u||, m, each ``[B, 1, N, 1]``.
    """
    heads, x = t.shape[1], t.transpose(1, 2).flatten(2)
    divisor = None if scale is None else F.softplus(scale).flatten().to(x.dtype)
    power, power_norm, norm, peak = (_Powers.apply if records_gradients() else _powers)(x, divisor, p)
    return power.unflatten(2, (heads, -1)).transpose(1, 2), power_norm[:, None], norm[:, None], peak[:, None]


def _powers(x: Tensor, divisor: Tensor | None, p: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """u^p ``[B, N, C]``, ||u^p||, ||u||, m, each ``[B, N, 1]``, for t = (relu(x) + 1e-6) / divisor and u = t / m."""
    t = x.relu() + EPS
    if divisor is not None:
        t = t / divisor
    peak = t.detach().amax(2, keepdim=True)
    u = t / peak
    power = u**p
    norm = torch.linalg.vector_norm
    return power, norm(power, dim=2, keepdim=True), norm(u, dim=2, keepdim=True), peak


class _Powers(torch.autograd.Function):
    """:func:`_powers`, keeping x and three numbers for each token, with the gradient in closed form::

    dL/du = p u^(p - 1) (dL/du^p + dL/d||u^p|| u^p / ||u^p||) + dL/d||u|| u / ||u||
    """

    @staticmethod
    def forward(ctx, x: Tensor, divisor: Tensor | None, p: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        power, power_norm, norm, peak = _powers(x, divisor, p)
        ctx.p = p
        ctx.save_for_backward(x, divisor, power_norm, norm, peak)
        ctx.mark_non_differentiable(peak)
        return power, power_norm, norm, peak

    @staticmethod
    def backward(ctx, d_power: Tensor, d_power_norm: Tensor, d_norm: Tensor, _) -> tuple[Tensor | None, ...]:
        x, divisor, power_norm, norm, peak = ctx.saved_tensors
        if torch.is_grad_enabled():  # by create_graph=True
            wanted = [None if t is None else t.view_as(t) for t in (x, divisor)]
            outputs = _powers(*wanted, ctx.p)[:3]
            wanted = [t if is_wanted else None for t, is_wanted in zip(wanted, ctx.needs_input_grad, strict=False)]
            inputs, grads = [t for t in wanted if t is not None], (d_power, d_power_norm, d_norm)
            gradients = iter(torch.autograd.grad(outputs, inputs, grads, create_graph=True))
            return *(None if t is None else next(gradients) for t in wanted), None
        divisors = [t for t in (divisor, peak) if t is not None]
        u = x.relu().add_(EPS)
        for each in divisors:
            u.div_(each)
        lower = u ** (ctx.p - 1)
        d_u = torch.addcmul(d_power, lower * u, d_power_norm / power_norm).mul_(lower.mul_(ctx.p))
        d_u.addcmul_(u, d_norm / norm)
        d_divisor = None
        if ctx.needs_input_grad[1]:
            d_divisor = -u.mul_(d_u).flatten(0, -2).sum(0) / divisor
        for each in divisors:
            d_u.div_(each)
        return d_u.masked_fill_(x <= 0, 0), d_divisor, None
