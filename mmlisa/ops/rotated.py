"""Rotary positions of a map, and the linear attentions that rotate their queries and keys: MILA, RALA and MALA.

Su et al., "RoFormer", Eq. 16, along two axes as MILA has them: with K = C / 4 frequencies θ_k = 10000^(-k/K), the token in row y
and column x turns its pair j of channels (2j, 2j + 1) by the angle y θ_j for j < K, and by x θ_(j-K) for the others. Positions
count from 0 on a map of any size.

Below, φ(x) = elu(x) + 1, R is the rotation, and Q = φ(q), K = φ(k). The attentions take query, key and value ``[B, h, N, d]``
on the grid (H, W) and return ``[B, h, N, d]``. Prefix tokens before those of the grid have no position. ``backend='reference'``
builds the N x N attention; ``'auto'`` is linear in N. A number of channels that :func:`rotary` does not take is a UserError.
"""

from collections.abc import Sequence
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor

from mmlisa.errors import UserError

from .context import no_autocast, operator

BASE = 10000
EPS = 1e-6


def rotary(x: Tensor, grid: Sequence[int]) -> Tensor:
    """Turn pairs of channels by angles that grow with the row and the column: ``[..., N, C] -> [..., N, C]``.

    Prefix tokens, before those of the grid (H, W), are not turned. The angles are fp32 at least.

    Raises:
        UserError: C is not a multiple of 4.
    """
    if x.shape[-1] % 4:
        raise UserError(f"rotary positions need a multiple of 4 channels, got {x.shape[-1]}")
    with no_autocast(x.device):
        prefix = x.shape[-2] - prod(grid)
        tokens = x[..., prefix:, :] if prefix else x
        count = x.shape[-1] // 4
        pairs = tokens.unflatten(-1, (2, count, 2)).unflatten(-4, tuple(grid))  # [..., H, W, 2, K, 2]
        wide = torch.promote_types(x.dtype, torch.float32)  # of the angles: bf16 has no 257
        exponents = torch.arange(count, dtype=wide, device=x.device) / count
        down, right = (torch.arange(size, dtype=wide, device=x.device)[:, None] * BASE**-exponents for size in grid)
        turned = torch.stack([_turn(pairs[..., 0, :, :], down[:, None]), _turn(pairs[..., 1, :, :], right)], dim=-3)
        turned = turned.flatten(-3).flatten(-3, -2)
    return torch.cat([x[..., :prefix, :], turned], dim=-2) if prefix else turned


def _turn(pairs: Tensor, angle: Tensor) -> Tensor:
    """``[..., H, W, K, 2]`` by ``[H, 1, K]`` or ``[W, K]``."""
    even, odd = pairs.unbind(-1)
    cos, sin = angle.cos().to(pairs.dtype), angle.sin().to(pairs.dtype)
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1)


@operator(one_shape=True, takes_bf16=True)
def mila(query: Tensor, key: Tensor, value: Tensor, grid: Sequence[int], *, backend: str = "auto") -> Tensor:
    """MILA's linear attention without its convolution; R acts on the channels of all heads together.

    Han et al., "Demystify Mamba in Vision: A Linear Attention Perspective". Only the numerator is rotated, so weights may be
    negative and need not sum to 1::

        y_i = (R Q)_i mean_j (R K)_jᵀ v_j / (Q_i mean_j K_jᵀ + 1e-6)
    """
    query, key, heads = F.elu(query) + 1, F.elu(key) + 1, query.shape[1]
    turned_query, turned_key = (
        rotary(t.transpose(1, 2).flatten(2), grid).unflatten(2, (heads, -1)).transpose(1, 2) for t in (query, key)
    )
    return _rotated_attention(query, key, turned_query, turned_key, value, backend)


@operator(one_shape=True)
def rala(query: Tensor, key: Tensor, value: Tensor, grid: Sequence[int], *, backend: str = "auto") -> Tensor:
    """Rank-augmented linear attention without its convolution and gate; R acts within each head.

    Fan et al., "Breaking the Low-Rank Dilemma of Linear Attention"::

        α_j = N softmax_j(mean_i(Q_i) K_jᵀ / sqrt(d))
        y_i = (R Q)_i mean_j (R α K)_jᵀ v_j / (Q_i mean_j α_j K_jᵀ + 1e-6)
    """
    query, key = F.elu(query) + 1, F.elu(key) + 1
    similarity = key @ query.mean(2)[..., None] / query.shape[3] ** 0.5
    key = key * (key.shape[2] * similarity.softmax(2))
    return _rotated_attention(query, key, rotary(query, grid), rotary(key, grid), value, backend)


@operator(one_shape=True)
def mala(query: Tensor, key: Tensor, value: Tensor, grid: Sequence[int], *, backend: str = "auto") -> Tensor:
    """Magnitude-aware linear attention without its convolution and gate; R acts within each head.

    Fan et al., "Rectifying Magnitude Neglect in Linear Attention", with s_ij = Q_i K_jᵀ / (N sqrt(d)), S_i = Σ_j s_ij and s' for
    R Q and R K::

        y_i = (1 + 1 / (S_i + 1e-6)) Σ_j s'_ij v_j - S_i mean_j v_j

    Without the rotation the weights of a token sum to 1. They may be negative, and they depend on the length of the query.
    """
    n = query.shape[2]
    query, key = (F.elu(query) + 1) * query.shape[3] ** -0.5, F.elu(key) + 1
    turned_query, turned_key = rotary(query, grid), rotary(key, grid)
    total = query @ key.mean(2)[..., None]
    beta = 1 + 1 / (total + EPS)
    if backend == "reference":
        return (beta * (turned_query @ turned_key.mT / n) - total / n) @ value
    return beta * (turned_query @ (turned_key.mT @ value / n)) - total * value.mean(2, keepdim=True)


def _rotated_attention(
    query: Tensor, key: Tensor, turned_query: Tensor, turned_key: Tensor, value: Tensor, backend: str
) -> Tensor:
    """Linear attention whose numerator takes the rotated query and key, ``[B, h, N, d]`` each."""
    n = key.shape[2]
    total = query @ key.mean(2)[..., None] + EPS
    if backend == "reference":
        return turned_query @ turned_key.mT / n @ value / total
    return turned_query @ (turned_key.mT @ value / n) / total
