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
    cells: int = 20,
    *,
    backend: str = "auto",
) -> Tensor:
    """Attend to the own window exactly and to cells elsewhere, ``[B, h, N, d]`` in O(N (window² + cells²)).

    It is softmax attention where one window covers the grid, or where the grid has at most ``cells`` tokens a side.

    Args:
        query, key, value: ``[B, h, N, d]``.
        grid: (H, W); N may exceed H * W by leading prefix tokens.
        window: side of a window in tokens; the map is padded to whole windows.
        cells: number of cells a side; each has floor or ceil of H / ``cells`` by W / ``cells`` tokens. 0 attends within windows.
        backend: ``'reference'`` writes the N x N matrix out; ``'auto'`` never does.

    Raises:
        UserError: shapes that do not fit, ``window`` below 1, or ``cells`` below 0.
    """
    check_arguments(query, key, value, backend)
    if len(grid) != 2 or query.shape[2] < prod(grid):
        raise UserError(f"grid={tuple(grid)} must be (H, W) of at most N={query.shape[2]} tokens")
    if window < 1 or cells < 0:
        raise UserError(
            f"window={window}, cells={cells}; a window has at least one token, and cells are a number from 0 on"
        )
    if backend == "reference":
        return _reference(query, key, value, grid, window, cells)
    if not has_free_size(*grid) and (max(grid) <= window or max(grid) <= cells):
        return F.scaled_dot_product_attention(query, key, value)
    with no_autocast(query.device):
        return _attend(query, key, value, grid, window, cells)


def _attend(query: Tensor, key: Tensor, value: Tensor, grid: Sequence[int], window: int, cells: int) -> Tensor:
    prefix = query.shape[2] - prod(grid)
    patches = [t[:, :, prefix:] for t in (query, key, value)]
    windows = [split_windows(t, grid, window) for t in patches]
    # Every window also sees these: the prefix tokens and the cells.
    more_keys, more_values = key[:, :, :prefix], value[:, :, :prefix]
    real = query.new_ones(1, 1, prod(grid), 1)
    padding = split_windows(real, grid, window)[..., 0].log()  # 0, and -inf for the padding
    bias = [padding.expand(*windows[0].shape[:2], -1, -1, -1), query.new_zeros(*windows[0].shape[:4], prefix)]
    if cells:
        cell_keys, cell_values, entropy = summarise(*patches, grid, cells)
        more_keys, more_values = torch.cat([more_keys, cell_keys], dim=2), torch.cat([more_values, cell_values], dim=2)
        outside = share_outside(grid, window, cells, entropy).log()
        bias.append((entropy[:, :, None, None] + outside).to(query.dtype))
    # A row of windows at a time, since each has its copy of the cells. A graph has no loop of a free length.
    step = windows[0].shape[2] if is_traced() else 1
    query_rows, key_rows, value_rows, bias_rows = (t.split(step, dim=2) for t in (*windows, torch.cat(bias, dim=4)))
    rows = [
        _attend_in_windows(*row, more_keys, more_values)
        for row in zip(query_rows, key_rows, value_rows, bias_rows, strict=True)
    ]
    y = torch.cat(rows, dim=2)
    first = F.scaled_dot_product_attention(query[:, :, :prefix], key, value)
    return torch.cat([first, merge_windows(y, grid, window)], dim=2)


def _attend_in_windows(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor, more_keys: Tensor, more_values: Tensor
) -> Tensor:
    """Tokens ``[B, h, nH, nW, n, d]`` attend to n + m keys with the bias ``[B, h, nH, nW, n + m]``; m are ``[B, h, m, d]``."""
    counts = query.shape[2:4]
    key = torch.cat([key, more_keys[:, :, None, None].expand(-1, -1, *counts, -1, -1)], dim=4)
    value = torch.cat([value, more_values[:, :, None, None].expand(-1, -1, *counts, -1, -1)], dim=4)
    query, key, value, bias = (t.flatten(1, 3) for t in (query, key, value, bias))
    mask = bias[:, :, None].expand(-1, -1, query.shape[2], -1)
    y = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    return y.unflatten(1, (-1, *counts))


def summarise(
    query: Tensor, key: Tensor, value: Tensor, grid: Sequence[int], cells: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return k_c and v_c, ``[B, h, cells², d]``, and H_c, ``[B, h, cells²]``, of the patches ``[B, h, N, d]``.

    H_c of a cell without a token is -inf.
    """
    (rows, has_row), (columns, has_column) = (cell_tokens(size, cells, query.device) for size in grid)
    # [cells², tokens]
    real = (has_row[:, None, :, None] & has_column[None, :, None, :]).flatten(2).flatten(0, 1)
    empty = ~real.any(dim=1)

    def in_cells(tokens: Tensor) -> Tensor:  # [B, h, cells², tokens, d]
        maps = tokens.unflatten(2, tuple(grid))
        maps = maps.index_select(2, rows.flatten()).unflatten(2, (cells, -1))
        maps = maps.index_select(4, columns.flatten()).unflatten(4, (cells, -1))
        return maps.transpose(3, 4).flatten(4, 5).flatten(2, 3)

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


def cell_tokens(size: int, cells: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Indices of the tokens in each cell along an axis, and False where a smaller cell has none: ``[cells, longest]`` each."""
    start, end = cell_edges(size, cells, device)
    index = start[:, None] + torch.arange(divide_up(size, cells), device=device)
    return index.clamp(max=size - 1), index < end[:, None]


def share_outside(grid: Sequence[int], window: int, cells: int, like: Tensor) -> Tensor:
    """Share of the tokens of a cell that are not in a window: ``[nH, nW, cells²]``; 1 for an empty cell."""
    device = like.device
    overlaps, lengths = [], []
    for size in grid:
        start, end = cell_edges(size, cells, device)
        first = torch.arange(divide_up(size, window), device=device)[:, None] * window
        overlaps.append((torch.minimum(end, first + window) - torch.maximum(start, first)).clamp(min=0))
        lengths.append(end - start)
    inside = overlaps[0][:, None, :, None] * overlaps[1][None, :, None, :]
    tokens = (lengths[0][:, None] * lengths[1]).clamp(min=1)
    return (1 - inside.to(like.dtype) / tokens).flatten(2)


def split_windows(tokens: Tensor, grid: Sequence[int], window: int) -> Tensor:
    """``[B, h, N, d] -> [B, h, nH, nW, window², d]``, padded with zeros below and to the right."""
    bottom, right = (divide_up(size, window) * window - size for size in grid)
    maps = F.pad(tokens.unflatten(2, tuple(grid)), (0, 0, 0, right, 0, bottom))
    return maps.unflatten(3, (-1, window)).unflatten(2, (-1, window)).transpose(3, 4).flatten(4, 5)


def merge_windows(windows: Tensor, grid: Sequence[int], window: int) -> Tensor:
    """``[B, h, nH, nW, window², d] -> [B, h, N, d]``, the inverse of :func:`split_windows`."""
    maps = windows.unflatten(4, (window, window)).transpose(3, 4).flatten(4, 5).flatten(2, 3)
    return maps[:, :, : grid[0], : grid[1]].flatten(2, 3)


def _reference(query: Tensor, key: Tensor, value: Tensor, grid: Sequence[int], window: int, cells: int) -> Tensor:
    """The formula with the N x N matrix: a token outside of the window has its cell's key, value and share; the oracle."""
    height, width = grid
    prefix = query.shape[2] - height * width
    scale = query.shape[3] ** -0.5
    row = torch.arange(height).repeat_interleave(width)
    column = torch.arange(width).repeat(height)
    own = row // window * width + column // window
    is_near = own[:, None] == own
    query, key, value = (at_least_fp32(t) for t in (query, key, value))
    if not cells:
        allowed = F.pad(is_near, (prefix, 0, prefix, 0), value=True)
        return (query @ key.mT * scale).masked_fill(~allowed, -torch.inf).softmax(3) @ value
    # The cell of a token, by the edges: cell c begins at floor(c size / cells).
    cell_row = (row[:, None] >= torch.arange(1, cells) * height // cells).sum(1)
    cell_column = (column[:, None] >= torch.arange(1, cells) * width // cells).sum(1)
    cell = cell_row * cells + cell_column
    own_query, own_key, own_value = (t[:, :, prefix:] for t in (query, key, value))
    scores = (own_key @ own_query.mean(2)[..., None])[..., 0] * scale  # of the mean query
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
