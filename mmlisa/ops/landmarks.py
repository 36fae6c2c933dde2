"""Attention through landmarks: averages of the tokens over the cells of a grid. iMHSA's and agent attention.

Interactive attention by decomposition (Kang et al., "Interactive Multi-Head Self-Attention with Linear Complexity", Sec. 3).
Shapes: B batch, h heads, N tokens, d channels of a head, L landmarks::

    q, k = average pooling of query and key on the grid                             [B, h, L, d]   Eq. 6
    A_Q  = W2q softmax_L(W1q (query kᵀ / sqrt(d)))                                  [B, h, N, L]   Eq. 7
    A_K  = W2k softmax_N(W1k (q keyᵀ / sqrt(d)))                                    [B, h, L, N]   Eq. 7
    y    = A_Q (A_K value)                                                          [B, h, N, d]   Eq. 8

The W mix heads, ``[h, h]`` each: ``(W A)_g = sum_h W_gh A_h``. No N x N matrix exists.

Agent attention (Han et al., "Agent Attention: On the Integration of Softmax and Linear Attention") has two softmaxes::

    y = softmax(q Aᵀ / sqrt(d) + B_2) softmax(A kᵀ / sqrt(d) + B_1) v
"""

from collections.abc import Sequence
from math import isqrt, prod

import torch
import torch.nn.functional as F
from torch import Tensor

from mmlisa.errors import UserError

from .context import at_least_fp32, check_arguments, check_shape, is_traced, no_autocast, operator

Mix = tuple[Tensor | None, Tensor | None]  # matrices [h, h] before and after a softmax; None mixes nothing


def pool_landmarks(tokens: Tensor, grid: Sequence[int], landmarks: int) -> Tensor:
    """Averages of the tokens over an s x s division of the grid, s² = ``landmarks`` (Eq. 6).

    Args:
        tokens: ``[B, h, N, d]``; those before the last H * W (a class token) take no part.
        grid: (H, W). Where s does not divide it, the windows are those of adaptive average pooling: they overlap by a
            row or column, and on a grid smaller than s x s a token stands for several landmarks.
        landmarks: L, a positive square number (UserError).

    Returns:
        ``[B, h, L, d]``, a view of the tokens where the grid is the landmark grid.
    """
    side = isqrt(max(landmarks, 0))
    if side < 1 or side * side != landmarks:
        raise UserError(f"landmarks={landmarks}; they form a square grid, so it must be 1, 4, 9, …, 49, 64, …")
    heads, n = tokens.shape[1], prod(grid)
    tokens = tokens[:, :, tokens.shape[2] - n :]
    if is_traced() or torch.are_deterministic_algorithms_enabled():
        # A recorded adaptive pooling keeps the windows of the example's grid; these follow the grid. Its gradient on GPUs depends
        # on the order of additions, which PyTorch refuses if it is told to.
        rows, columns = (pooling_windows(size, side, tokens) for size in grid)
        maps = tokens.unflatten(2, tuple(grid))
        return torch.einsum("iy,jx,bhyxd->bhijd", rows, columns, maps).flatten(2, 3)
    if tuple(grid) == (side, side):
        return tokens
    # With the tokens of all heads side by side, as a projection leaves them, this is a channels-last map and a view.
    maps = tokens.transpose(1, 2).flatten(2).unflatten(1, tuple(grid)).permute(0, 3, 1, 2)
    pooled = F.adaptive_avg_pool2d(maps, side).permute(0, 2, 3, 1)
    return pooled.flatten(1, 2).unflatten(2, (heads, -1)).transpose(1, 2)


def pooling_windows(size: int, side: int, like: Tensor) -> Tensor:
    """Averages over the windows of adaptive pooling as a matrix ``[side, size]``; ``size`` may be a symbol."""
    window = torch.arange(side, device=like.device)[:, None]
    start, end = window * size // side, ((window + 1) * size + side - 1) // side
    position = torch.arange(size, device=like.device)
    return ((position >= start) & (position < end)).to(like.dtype) / (end - start)


def interactive_softmax(query: Tensor, key: Tensor, value: Tensor, *, mix: Mix = (None, None)) -> Tensor:
    """Softmax attention with head mixing: between all tokens Eq. 5, the quadratic row of Table 8, or one side of Eq. 7.

    Scores and softmax are fp32: in fp16 the products overflow for large activations, and a softmax over thousands of tokens has
    weights that bf16 cannot tell apart. Query ``[B, h, n, d]``, key and value ``[B, h, m, d]`` -> ``[B, h, n, d]``.
    """
    before, after = mix
    with no_autocast(query.device):
        query, key = at_least_fp32(query), at_least_fp32(key)
        scale = query.shape[-1] ** -0.5
        # The scale goes to the landmarks, the shorter of the two.
        query, key = (query * scale, key) if query.shape[2] < key.shape[2] else (query, key * scale)
        maps = _mix_heads(before, query @ key.transpose(2, 3))
        maps = maps.softmax(dim=-1).to(value.dtype)  # one name, so that no more than two of these live at a time
        maps = _mix_heads(after, maps)
        return maps @ value


def _mix_heads(mixing: Tensor | None, maps: Tensor) -> Tensor:
    """``[h, h]``, ``[B, h, n, m]`` -> ``[B, h, n, m]``: one matrix product, without moving the heads to the last axis."""
    if mixing is None:
        return maps
    # Not `mixing @ maps`: for a matrix on the left, matmul transposes (and copies) the batch.
    mixing = mixing.to(maps.dtype).expand(maps.shape[0], -1, -1)
    return torch.bmm(mixing, maps.flatten(2)).unflatten(2, maps.shape[2:])


def interactive(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    grid: Sequence[int],
    landmarks: int | None = 49,
    *,
    mix_query: Mix = (None, None),
    mix_key: Mix = (None, None),
    backend: str = "auto",
) -> Tensor:
    """Interactive attention, linear in N in time and memory, ``[B, h, N, d]`` in the dtype of ``value``.

    Args:
        query, key, value: ``[B, h, N, d]``.
        grid: (H, W); N may exceed H * W by leading prefix tokens, which attend and are attended to but belong to no landmark.
        landmarks: L, a square number; None attends between all tokens, quadratic in N, with ``mix_query``.
        mix_query: (W1q, W2q), around the softmax over the landmarks.
        mix_key: (W1k, W2k), around the softmax over the tokens.
        backend: ``'reference'`` forms the N x N matrix A_Q A_K; ``'auto'`` never does.
    """
    check_arguments(query, key, value, backend)
    if len(grid) != 2 or query.shape[2] < prod(grid):
        raise UserError(f"grid={tuple(grid)} must be (H, W) of at most N={query.shape[2]} tokens")
    for name, mix in (("mix_query", mix_query), ("mix_key", mix_key)):
        for mixing in mix:
            check_shape(name, mixing, (query.shape[1],) * 2)
    if landmarks is None:
        return interactive_softmax(query, key, value, mix=mix_query)
    if backend == "reference":
        return _interactive_reference(query, key, value, grid, landmarks, mix_query, mix_key)
    context = interactive_softmax(pool_landmarks(query, grid, landmarks), key, value, mix=mix_key)
    return interactive_softmax(query, pool_landmarks(key, grid, landmarks), context, mix=mix_query)


def _interactive_reference(query, key, value, grid, landmarks, mix_query, mix_key) -> Tensor:
    """Eqs. 6 to 8 as they stand, with every window of the pooling and the N x N matrix written out; the oracle."""
    side, (height, width), scale = isqrt(landmarks), grid, query.shape[-1] ** -0.5

    def window(size: int, i: int) -> slice:
        return slice(i * size // side, -(-(i + 1) * size // side))

    def pool(tokens: Tensor) -> Tensor:
        maps = tokens[:, :, -height * width :].unflatten(2, (height, width))
        windows = [maps[:, :, window(height, i), window(width, j)] for i in range(side) for j in range(side)]
        return torch.stack([w.mean(dim=(2, 3)) for w in windows], dim=2)

    def mix(mixing: Tensor | None, maps: Tensor) -> Tensor:
        return maps if mixing is None else torch.einsum("gh,bhnm->bgnm", mixing, maps)

    a_query = mix(mix_query[0], torch.einsum("bhnd,bhld->bhnl", query, pool(key)) * scale)
    a_key = mix(mix_key[0], torch.einsum("bhld,bhnd->bhln", pool(query), key) * scale)
    a_query, a_key = mix(mix_query[1], a_query.softmax(dim=-1)), mix(mix_key[1], a_key.softmax(dim=-1))
    return (a_query @ a_key) @ value


@operator
def agent(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    agents: Tensor,
    gather_bias: Tensor | None = None,
    spread_bias: Tensor | None = None,
    *,
    backend: str = "auto",
) -> Tensor:
    """Agent attention without its convolution, ``[B, h, N, d]`` in O(N n d).

    ``agents``, A, are ``[B, h, n, d]``; the biases B_1 ``[h, n, N]`` and B_2 ``[h, N, n]``, None for 0. ``backend='reference'``
    writes both softmaxes out; ``'auto'`` takes PyTorch's fused attention.
    """
    attend = _softmax_attention if backend == "reference" else F.scaled_dot_product_attention
    gather_bias, spread_bias = (None if bias is None else bias[None] for bias in (gather_bias, spread_bias))
    return attend(query, agents, attend(agents, key, value, gather_bias), spread_bias)


def _softmax_attention(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
    logits = query @ key.mT / query.shape[3] ** 0.5
    return (logits if bias is None else logits + bias).softmax(3) @ value
