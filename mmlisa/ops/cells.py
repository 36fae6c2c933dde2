"""Softmax attention that is exact nearby and summarised far away, linear in the number of tokens.

A query attends to the tokens of its own window, to the prefix tokens, and elsewhere to cells, under one softmax (the scheme is
that of Yang et al., "Focal Attention for Long-Range Interactions in Vision Transformers"). It has no parameters: it takes the
place of a softmax that is trained already. Shapes: B batch, h heads, N tokens, d channels of a head, s = d^-1/2.

What a query q gets from the tokens j of a cell c depends on L(q) = log sum_j exp(s q·k_j), the cell's score. It is taken to first
order around the mean query m of the map, where score and value are exact::

    w_j = softmax_c(s m·k_j)      k_c = sum_j w_j k_j      v_c = sum_j w_j v_j      H_c = -sum_j w_j log w_j

    L(q) = L(m) + s (q - m)·k_c + … = H_c + s q·k_c + …

So a cell stands for exp(H_c) tokens with the key k_c: for all of its tokens if they answer the mean query alike, and for one if
that is all it sees. Of a cell that lies partly in the window, the share outside counts: log(1 - |c in window| / |c|) is added.
Prefix tokens, as queries, attend to all tokens.
"""

from collections.abc import Sequence
from math import log, prod

import torch
import torch.nn.functional as F
from torch import Tensor

from mmlisa.errors import UserError

from .context import at_least_fp32, check_arguments, divide_up, has_free_size, is_traced, no_autocast


def cell_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    grid: Sequence[int],
    window: int = 16,
    cells: int = 24,
    *,
    backend: str = "auto",
) -> Tensor:
    """Attend to the own window exactly and to cells elsewhere, ``[B, h, N, d]`` in O(N (window² + cells²)).

    It is softmax attention where one window covers the grid, or where the grid has at most ``cells`` tokens a side.

    Args:
        query, key, value: ``[B, h, N, d]``.
        grid: (H, W); N may exceed H * W by leading prefix tokens.
        window: largest side of a window in tokens; the map has as few as possible, of equal size. 0: cells alone.
        cells: number of cells a side; each has floor or ceil of H / ``cells`` by W / ``cells`` tokens. 0: windows alone,
            of exactly ``window`` tokens a side, ViTDet's.
        backend: ``'reference'`` writes the N x N matrix out; ``'auto'`` never does.

    Raises:
        UserError: shapes that do not fit, ``window`` and ``cells`` that are both 0, or below 0.
    """
    check_arguments(query, key, value, backend)
    if len(grid) != 2 or query.shape[2] < prod(grid):
        raise UserError(f"grid={tuple(grid)} must be (H, W) of at most N={query.shape[2]} tokens")
    if min(window, cells) < 0 or max(window, cells) == 0:
        raise UserError(f"window={window}, cells={cells} must be numbers from 0 on, and one of them positive")
    if backend == "reference":
        return _reference(query, key, value, grid, window, cells)
    if not has_free_size(*grid) and (max(grid) <= window or max(grid) <= cells):
        return F.scaled_dot_product_attention(query, key, value)
    with no_autocast(query.device):
        return _attend(query, key, value, grid, window, cells)


def _attend(query: Tensor, key: Tensor, value: Tensor, grid: Sequence[int], window: int, cells: int) -> Tensor:
    prefix = query.shape[2] - prod(grid)
    patches = [t[:, :, prefix:] for t in (query, key, value)]
    # Every patch sees these: the prefix tokens and the cells.
    more_keys, more_values = key[:, :, :prefix], value[:, :, :prefix]
    entropy = query.new_empty(*query.shape[:2], 0)
    if cells:
        cell_keys, cell_values, entropy = summarise(*patches, grid, cells)
        more_keys, more_values = torch.cat([more_keys, cell_keys], dim=2), torch.cat([more_values, cell_values], dim=2)
    if window:
        y = _attend_near(patches, grid, window, cells, more_keys, more_values, entropy)
    else:
        mask = F.pad(entropy, (prefix, 0)).to(query.dtype)[:, :, None].expand(-1, -1, prod(grid), -1)
        y = F.scaled_dot_product_attention(patches[0], more_keys, more_values, attn_mask=mask)
    first = F.scaled_dot_product_attention(query[:, :, :prefix], key, value)
    return torch.cat([first, y], dim=2)


def _attend_near(
    patches: Sequence[Tensor],
    grid: Sequence[int],
    window: int,
    cells: int,
    more_keys: Tensor,
    more_values: Tensor,
    entropy: Tensor,
) -> Tensor:
    """Attend to the own window and to m more keys, of which the cells are the last."""
    edges = [window_edges(size, window, cells, entropy.device) for size in grid]
    slots = [window if has_free_size(size) else divide_up(size, divide_up(size, window)) for size in grid]
    tokens, real = tokens_in(edges, slots, grid)  # [nH, nW, n]
    outside = share_outside(edges, grid, cells, entropy.dtype)
    cell_bias = entropy[:, :, None, None] + outside.log()
    more_bias = F.pad(cell_bias, (more_keys.shape[2] - entropy.shape[2], 0))  # 0 for the prefix tokens
    padding = real.to(entropy.dtype).log()  # 0, and -inf where a window has fewer tokens
    bias = torch.cat([padding.expand(*more_bias.shape[:4], -1), more_bias], dim=4).to(patches[0].dtype)
    # A row of windows at a time, since each has its copy of the cells. A graph has no loop of a free length.
    step = tokens.shape[0] if is_traced() else 1
    rows = []
    for row, row_bias in zip(tokens.split(step), bias.split(step, dim=2), strict=True):
        row = row.flatten(0, 1)
        query, key, value = (t.index_select(2, row.flatten()).unflatten(2, row.shape) for t in patches)
        rows.append(_attend_in_windows(query, key, value, row_bias.flatten(2, 3), more_keys, more_values))
    y = torch.cat(rows, dim=2).flatten(2, 3)
    return y.index_select(2, slots_of_tokens(edges, slots, grid))


def _attend_in_windows(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor, more_keys: Tensor, more_values: Tensor
) -> Tensor:
    """Tokens of windows ``[B, h, w, n, d]`` attend to n + m keys with the bias ``[B, h, w, n + m]``; m are ``[B, h, m, d]``."""
    windows = query.shape[:3]
    key = torch.cat([key, more_keys[:, :, None].expand(*windows, -1, -1)], dim=3)
    value = torch.cat([value, more_values[:, :, None].expand(*windows, -1, -1)], dim=3)
    query, key, value, mask = (t.flatten(1, 2) for t in (query, key, value, bias[..., None, :]))
    y = F.scaled_dot_product_attention(query, key, value, attn_mask=mask.expand(-1, -1, query.shape[2], -1))
    return y.unflatten(1, windows[1:])


def summarise(
    query: Tensor, key: Tensor, value: Tensor, grid: Sequence[int], cells: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return k_c and v_c, ``[B, h, cells², d]``, and H_c, ``[B, h, cells²]``, of the patches ``[B, h, N, d]``.

    H_c of a cell without a token is -inf.
    """
    edges = [cell_edges(size, cells, query.device) for size in grid]
    slots = [divide_up(size, cells) for size in grid]
    tokens, real = (t.flatten(0, 1) for t in tokens_in(edges, slots, grid))  # [cells², tokens]
    empty = ~real.any(dim=1)

    def in_cells(t: Tensor) -> Tensor:  # [B, h, cells², tokens, d]
        return t.index_select(2, tokens.flatten()).unflatten(2, tokens.shape)

    keys, values = in_cells(key), in_cells(value)
    mean = at_least_fp32(query).mean(dim=2) * query.shape[3] ** -0.5  # s m
    scores = torch.einsum("bhctd,bhd->bhct", at_least_fp32(keys), mean)
    scores = scores.masked_fill(~(real | empty[:, None]), -torch.inf)
    weights = scores.softmax(dim=3)
    cell_keys = torch.einsum("bhct,bhctd->bhcd", weights, at_least_fp32(keys))
    cell_values = torch.einsum("bhct,bhctd->bhcd", weights, at_least_fp32(values))
    entropy = scores.logsumexp(dim=3) - torch.einsum("bhcd,bhd->bhc", cell_keys, mean)
    entropy = entropy.masked_fill(empty, -torch.inf)
    return cell_keys.to(key.dtype), cell_values.to(value.dtype), entropy


def cell_edges(size: int, cells: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """First token of each cell along an axis, and of the next one: ``[cells]`` each."""
    cell = torch.arange(cells, device=device)
    return cell * size // cells, (cell + 1) * size // cells


def window_edges(size: int, window: int, cells: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """First token of each window along an axis, and of the next one.

    Beside cells, windows are as equal as they can be. Without, they are ViTDet's, of which the last one may be small.
    """
    count = divide_up(size, window)
    if cells:
        return cell_edges(size, count, device)
    start = torch.arange(count, device=device) * window
    return start, (start + window).clamp(max=size)


def tokens_in(
    edges: Sequence[tuple[Tensor, Tensor]], slots: Sequence[int], grid: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Indices of the tokens in each area, and False where it has none: ``[rows, columns, slots]`` each.

    Args:
        edges: for each axis, the first token of each area and of the next one.
        slots: for each axis, the largest number of tokens in an area, or more.
    """
    indices, are_real = [], []
    for (start, end), longest, size in zip(edges, slots, grid, strict=True):
        index = start[:, None] + torch.arange(longest, device=start.device)
        indices.append(index.clamp(max=size - 1))
        are_real.append(index < end[:, None])
    tokens = indices[0][:, None, :, None] * grid[1] + indices[1][None, :, None, :]
    real = are_real[0][:, None, :, None] & are_real[1][None, :, None, :]
    return tokens.flatten(2), real.flatten(2)


def slots_of_tokens(edges: Sequence[tuple[Tensor, Tensor]], slots: Sequence[int], grid: Sequence[int]) -> Tensor:
    """Where each token lies in ``[nH, nW, slots]``: ``[N]``, the inverse of :func:`tokens_in`."""
    areas, places = [], []
    for (start, _), size in zip(edges, grid, strict=True):
        token = torch.arange(size, device=start.device)
        areas.append((token[:, None] >= start[1:]).sum(dim=1))
        places.append(token - start[areas[-1]])
    area = areas[0][:, None] * edges[1][0].shape[0] + areas[1]
    place = places[0][:, None] * slots[1] + places[1]
    return (area * (slots[0] * slots[1]) + place).flatten()


def share_outside(
    edges: Sequence[tuple[Tensor, Tensor]], grid: Sequence[int], cells: int, dtype: torch.dtype
) -> Tensor:
    """Share of the tokens of a cell that are not in a window: ``[nH, nW, cells²]``; 1 for an empty cell."""
    overlaps, lengths = [], []
    for (first, last), size in zip(edges, grid, strict=True):
        start, end = cell_edges(size, cells, first.device)
        overlap = torch.minimum(end, last[:, None]) - torch.maximum(start, first[:, None])
        overlaps.append(overlap.clamp(min=0))
        lengths.append(end - start)
    inside = overlaps[0][:, None, :, None] * overlaps[1][None, :, None, :]
    tokens = (lengths[0][:, None] * lengths[1]).clamp(min=1)
    return (1 - inside.to(dtype) / tokens).flatten(2)


def _reference(query: Tensor, key: Tensor, value: Tensor, grid: Sequence[int], window: int, cells: int) -> Tensor:
    """The formula with the N x N matrix: a token outside of the window has its cell's key, value and share; the oracle."""
    height, width = grid
    prefix = query.shape[2] - height * width
    scale = query.shape[3] ** -0.5
    row = torch.arange(height, device=query.device).repeat_interleave(width)
    column = torch.arange(width, device=query.device).repeat(height)
    is_near = row.new_zeros(height * width, height * width, dtype=torch.bool)
    if window:
        own = _areas(row, height, window, cells) * width + _areas(column, width, window, cells)
        is_near = own[:, None] == own
    query, key, value = (at_least_fp32(t) for t in (query, key, value))
    if not cells:
        allowed = F.pad(is_near, (prefix, 0, prefix, 0), value=True)
        return (query @ key.mT * scale).masked_fill(~allowed, -torch.inf).softmax(3) @ value
    # The cell of a token, by the edges: cell c begins at floor(c size / cells).
    part = torch.arange(1, cells, device=row.device)
    cell_row = (row[:, None] >= part * height // cells).sum(1)
    cell_column = (column[:, None] >= part * width // cells).sum(1)
    cell = cell_row * cells + cell_column
    own_query, own_key, own_value = (t[:, :, prefix:] for t in (query, key, value))
    scores = (own_key @ own_query.mean(2)[..., None])[..., 0] * scale  # the mean query's
    far_key, far_value, far_bias = torch.zeros_like(own_key), torch.zeros_like(own_value), torch.zeros_like(scores)
    for index in cell.unique():
        members = cell == index
        w = scores[..., members].softmax(2)
        far_key[:, :, members] = (w[..., None] * own_key[:, :, members]).sum(2, keepdim=True)
        far_value[:, :, members] = (w[..., None] * own_value[:, :, members]).sum(2, keepdim=True)
        far_bias[:, :, members] = torch.special.entr(w).sum(2, keepdim=True) - log(members.sum())
    near = query @ key.mT * scale
    far = own_query @ far_key.mT * scale + far_bias[:, :, None]
    logits = near.clone()
    logits[:, :, prefix:, prefix:] = torch.where(is_near, near[:, :, prefix:, prefix:], far)
    weights = logits.softmax(3)
    y = weights @ value
    outside = weights[:, :, prefix:, prefix:] * ~is_near
    y[:, :, prefix:] = y[:, :, prefix:] + outside @ (far_value - own_value)
    return y


def _areas(token: Tensor, size: int, window: int, cells: int) -> Tensor:
    """Index of the window of a token along an axis."""
    if not cells:
        return token // window
    count = divide_up(size, window)
    return (token[:, None] >= torch.arange(1, count, device=token.device) * size // count).sum(1)
