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

from .checks import check_backend, check_tokens_of_heads
from .precision import at_least_fp32, no_autocast
from .tracing import is_traced, is_transformed

EPS = 1e-6
# The smallest denominator that fp32 divides and differentiates safely. Only if the norms of a query and a key have a product
# beyond 1e14 is the sum smaller.
_LEAST_DENOMINATOR = 1e-20
BACKENDS = ("auto", "reference", "linear")


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
    """Focused linear attention without its depthwise convolution (Eqs. 4-6).

    Args:
        query, key, value: ``[B, h, N, d]``, projected; the key with its position added, nothing rectified yet. All heads
            of a token must be there: the norms run over h and d together.
        scale: ``[h, d]``, before its softplus; None divides by nothing.
        focusing_factor: p > 0; with p = 1 and no scale this is the plain linear attention of ReLU.
        mask: ``[B, N]``, True where a key counts; None counts all.
        backend: ``'reference'`` builds the N x N attention, in the inputs' own precision; ``'linear'``, which ``'auto'``
            takes, is linear in N, in fp32 at least, and finite for any finite input.

    Returns:
        ``[B, h, N, d]``.

    Raises:
        ValueError: shapes that do not fit each other, a focusing factor that is not positive, an unknown backend.
    """
    check_backend(backend, BACKENDS)
    _check(query, key, value, scale, focusing_factor, mask)
    evaluate = _reference if backend == "reference" else _linear
    return evaluate(query, key, value, scale, focusing_factor, mask)


def _check(query, key, value, scale, focusing_factor, mask) -> None:
    check_tokens_of_heads(query, key, value)
    if not focusing_factor > 0:
        raise ValueError(f"focusing_factor={focusing_factor}; it must be positive")
    batch, heads, n, width = query.shape
    for name, tensor, shape in (("scale", scale, (heads, width)), ("mask", mask, (batch, n))):
        if tensor is not None and tensor.shape != shape:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}; these tokens need {shape}")


def _reference(q_BhNd, k_BhNd, v_BhNd, scale_hd, p, mask_BN) -> Tensor:
    """The equations as they stand, with the N x N attention; the oracle of every other backend."""

    def focus(t):
        t = t.relu() + EPS
        if scale_hd is not None:
            t = t / F.softplus(scale_hd)[:, None]
        norm = t.pow(2).sum((1, 3), keepdim=True).sqrt()
        return t**p / t.pow(2 * p).sum((1, 3), keepdim=True).sqrt() * norm

    similarity = focus(q_BhNd) @ focus(k_BhNd).transpose(2, 3)
    n = similarity.shape[-1]
    if mask_BN is not None:
        similarity = similarity * mask_BN[:, None, None]
        n = mask_BN.sum(1)[:, None, None, None]
    return similarity @ v_BhNd / (similarity.sum(3, keepdim=True) + n * EPS)


def _focus(t_BhNd: Tensor, scale_hd: Tensor | None, p: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The focused function as factors that neither overflow nor vanish.

    Divided by its largest channel m, a detached constant that the function does not depend on, a token u has channels in (0, 1]:
    f(t) = u^p / ||u^p|| * m ||u||.

    Returns:
        u^p ``[B, h, N, d]``, and ||u^p||, ||u||, m, each ``[B, 1, N, 1]``.
    """
    heads, x_BNC = t_BhNd.shape[1], t_BhNd.transpose(1, 2).flatten(2)
    divisor_C = None if scale_hd is None else F.softplus(scale_hd.to(x_BNC.dtype)).flatten()
    is_plain = not torch.is_grad_enabled() or is_traced() or is_transformed()
    power_BNC, *norms = (_powers if is_plain else _Powers.apply)(x_BNC, divisor_C, p)
    return power_BNC.unflatten(2, (heads, -1)).transpose(1, 2), *(x[:, None] for x in norms)


def _powers(x_BNC: Tensor, divisor_C: Tensor | None, p: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """u^p ``[B, N, C]``, ||u^p||, ||u||, m, each ``[B, N, 1]``, for t = (relu(x) + 1e-6) / divisor and u = t / m."""
    t_BNC = x_BNC.relu() + EPS
    if divisor_C is not None:
        t_BNC = t_BNC / divisor_C
    peak = t_BNC.detach().amax(2, keepdim=True)
    u_BNC = t_BNC / peak
    power_BNC = u_BNC**p
    return power_BNC, *(torch.linalg.vector_norm(x, dim=2, keepdim=True) for x in (power_BNC, u_BNC)), peak


class _Powers(torch.autograd.Function):
    """:func:`_powers`, keeping x and three numbers for each token, with the gradient in closed form::

    dL/du = p u^(p - 1) (dL/du^p + dL/d||u^p|| u^p / ||u^p||) + dL/d||u|| u / ||u||
    """

    @staticmethod
    def forward(ctx, x_BNC: Tensor, divisor_C: Tensor | None, p: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        power_BNC, power_norm, norm, peak = _powers(x_BNC, divisor_C, p)
        ctx.p = p
        ctx.save_for_backward(x_BNC, divisor_C, power_norm, norm, peak)
        ctx.mark_non_differentiable(peak)
        return power_BNC, power_norm, norm, peak

    @staticmethod
    def backward(ctx, d_power: Tensor, d_power_norm: Tensor, d_norm: Tensor, _) -> tuple[Tensor | None, ...]:
        x_BNC, divisor_C, power_norm, norm, peak = ctx.saved_tensors
        if torch.is_grad_enabled():  # by create_graph=True
            wanted = [None if t is None else t.view_as(t) for t in (x_BNC, divisor_C)]
            outputs = _powers(*wanted, ctx.p)[:3]
            wanted = [t if is_wanted else None for t, is_wanted in zip(wanted, ctx.needs_input_grad, strict=False)]
            found = iter(
                torch.autograd.grad(
                    outputs, [t for t in wanted if t is not None], (d_power, d_power_norm, d_norm), create_graph=True
                )
            )
            return *(None if t is None else next(found) for t in wanted), None
        divisors = [t for t in (divisor_C, peak) if t is not None]
        u_BNC = x_BNC.relu().add_(EPS)
        for divisor in divisors:
            u_BNC.div_(divisor)
        lower = u_BNC ** (ctx.p - 1)
        d_u = torch.addcmul(d_power, lower * u_BNC, d_power_norm / power_norm).mul_(lower.mul_(ctx.p))
        d_u.addcmul_(u_BNC, d_norm / norm)
        d_divisor = None
        if ctx.needs_input_grad[1]:
            d_divisor = -u_BNC.mul_(d_u).flatten(0, -2).sum(0) / divisor_C
        for divisor in divisors:
            d_u.div_(divisor)
        return d_u.masked_fill_(x_BNC <= 0, 0), d_divisor, None


def _linear(q_BhNd, k_BhNd, v_BhNd, scale_hd, p, mask_BN) -> Tensor:
    """(Σ k v) before (q k): O(N d^2).

    The scales of a query and of the largest key cancel in the quotient, except in the term with epsilon. Both are therefore
    divided out of the sums, which are then of order one, and stay in that term only.
    """
    dtype = v_BhNd.dtype
    with no_autocast(q_BhNd.device):
        q_BhNd, k_BhNd, v_BhNd = (at_least_fp32(t) for t in (q_BhNd, k_BhNd, v_BhNd))
        q, q_power_norm, q_norm, q_peak = _focus(q_BhNd, scale_hd, p)
        k, k_power_norm, k_norm, k_peak = _focus(k_BhNd, scale_hd, p)
        largest = k_peak.amax(2, keepdim=True)
        weight = k_norm * (k_peak / largest) / k_power_norm
        if mask_BN is None:
            weight = weight / k.shape[2]
        else:
            mask = mask_BN[:, None, :, None].to(weight.dtype)
            weight = weight * mask / mask.sum(2, keepdim=True)
        k = k * weight  # f(k) / (N * largest)
        kv = k.transpose(2, 3) @ v_BhNd
        denominator = q @ k.sum(2)[..., None] + EPS * q_power_norm / (q_norm * q_peak * largest)
        return (q @ kv / denominator.clamp(min=_LEAST_DENOMINATOR)).to(dtype)
