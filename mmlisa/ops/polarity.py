"""Polarity-aware linear attention (Meng et al., "PolaFormer: Polarity-aware Linear Attention for Vision Transformers").

Positive and negative parts of queries and keys keep apart. With a learned power for each channel::

    t    = t / softplus(scale),   p = 1 + 4 sigmoid(power)        t in {query, key}
    t+   = relu(t)^p,             t- = relu(-t)^p
    same_ij = q+_i k+_j + q-_i k-_j,    opposite_ij = q+_i k-_j + q-_i k+_j
    y_i  = [Σ_j same_ij v1_j / (Σ_j same_ij + N 1e-6) | Σ_j opposite_ij v2_j / (Σ_j opposite_ij + N 1e-6)]

v1 and v2 are the halves of a head's values. There is no 1/sqrt(d).
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from mmlisa.errors import UserError

from .context import check_shape, operator

EPS = 1e-6
ALPHA = 4
# The smallest magnitude whose logarithm is taken, and the smallest denominator: without pairs of one polarity, the sum is zero,
# and the divided epsilon may be.
_LEAST = 1e-30


@operator(one_shape=True)
def polarity_aware(
    query: Tensor, key: Tensor, value: Tensor, power: Tensor, scale: Tensor, *, backend: str = "auto"
) -> Tensor:
    """Polarity-aware linear attention without its convolution and gate, ``[B, h, N, d]``.

    Args:
        query, key, value: ``[B, h, N, d]``, projected; the key with its position added. d is even.
        power, scale: ``[h, d]``, before their sigmoid and softplus.
        backend: ``'reference'`` builds the N x N attention with plain powers; ``'auto'`` is linear in N and finite for any finite
            input.
    """
    heads, width = query.shape[1], query.shape[3]
    if width % 2:
        raise UserError(f"polarity-aware attention halves the channels of a head, and {width} is odd")
    check_shape("power", power, (heads, width))
    check_shape("scale", scale, (heads, width))
    exponent, divisor = 1 + ALPHA * power.sigmoid()[:, None], F.softplus(scale)[:, None]
    return (_reference if backend == "reference" else _linear)(query / divisor, key / divisor, value, exponent)


def _reference(query: Tensor, key: Tensor, value: Tensor, exponent: Tensor) -> Tensor:
    plus, minus = (tuple((sign * t).relu() ** exponent for t in (query, key)) for sign in (1, -1))
    same = plus[0] @ plus[1].mT + minus[0] @ minus[1].mT
    opposite = plus[0] @ minus[1].mT + minus[0] @ plus[1].mT
    n, halves = key.shape[2], value.chunk(2, dim=3)
    results = (w @ v / (w.sum(3, keepdim=True) + n * EPS) for w, v in zip((same, opposite), halves, strict=True))
    return torch.cat(list(results), dim=3)


def _linear(query: Tensor, key: Tensor, value: Tensor, exponent: Tensor) -> Tensor:
    """(Σ k v) before (q k): O(N d²), on powers divided by the largest of a query and by the largest of all keys.

    Both divisors cancel, except beside epsilon, which is divided too.
    """
    q_plus, q_minus, q_peak = _powers(query, exponent, (3,))
    k_plus, k_minus, k_peak = _powers(key, exponent, (2, 3))
    eps = EPS * (-q_peak - k_peak).exp()
    keys, halves = torch.cat([k_plus, k_minus], dim=3), value.chunk(2, dim=3)
    queries = torch.cat([q_plus, q_minus], dim=3), torch.cat([q_minus, q_plus], dim=3)
    mean = keys.mean(2)[..., None]
    results = (
        q @ (keys.mT @ v / keys.shape[2]) / (q @ mean + eps).clamp(min=_LEAST)
        for q, v in zip(queries, halves, strict=True)
    )
    return torch.cat(list(results), dim=3)


def _powers(t: Tensor, exponent: Tensor, axes: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """Positive and negative powers, both divided by the exponential of the third result, a constant without gradient.

    The largest power along ``axes`` is then 1. It is found among the logarithms, which do not overflow.
    """
    logarithm = exponent * t.abs().clamp(min=_LEAST).log()
    peak = logarithm.detach().amax(axes, keepdim=True)
    power = (logarithm - peak).exp()
    return torch.where(t > 0, power, 0), torch.where(t < 0, power, 0), peak
