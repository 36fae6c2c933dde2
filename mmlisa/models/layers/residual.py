"""Residual branches, and how they are computed.

A large map's wide activations, such as an MLP's hidden layer, do not fit a CPU's cache, and moving them costs more than computing
them; so does touching new memory. In inference on a CPU a :class:`Branch` is therefore computed a chunk of tokens, or of rows, at
a time, and a stage adds its branches in place, in memory that it made itself and that nobody watches.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import local

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules import module as _module

from mmlisa.ops.chunks import chunk_length, is_chunked


class Branch(nn.Module):
    """``reduce(dwconv(expand(x)))`` on tokens ``[B, N, C]``: what MLPs and separable convolutions have in common.

    Attributes:
        hidden: channels of the widest activation.
        dwconv: a depthwise :class:`TokenConv` of stride 1, or None.
    """

    hidden: int
    dwconv: nn.Module | None

    def expand(self, x: Tensor) -> Tensor:
        """``[..., C] -> [..., hidden]``, every token by itself."""
        return x

    def reduce(self, x: Tensor) -> Tensor:
        """``[..., hidden] -> [..., C]``, every token by itself."""
        return x

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        x = self.expand(x)
        if self.dwconv is not None:
            x = self.dwconv(x, grid)
        return self.reduce(x)


class _Owned(local):
    """The result of the last residual branch, while a stage that nobody watches runs in this thread."""

    active = False
    result: Tensor | None = None


_owned = _Owned()


@contextmanager
def owning_memory(stage: nn.Module) -> Iterator[None]:
    """Within, a residual branch is added in place to the result of the one before, unless a hook in ``stage`` could keep that."""
    _owned.active = not torch.is_grad_enabled() and not _have_hooks(stage)
    try:
        yield
    finally:
        _owned.active, _owned.result = False, None


def residual(
    x: Tensor,
    norm: nn.Module | None,
    branch: nn.Module,
    drop_path: nn.Module | None,
    grid: Sequence[int],
    scale: nn.Module | None = None,
) -> Tensor:
    """``scale(x) + drop_path(branch(norm(x), grid))``; None stands for the identity.

    Args:
        x: tokens ``[B, N, C]`` of ``grid``.
        norm: ``[..., C] -> [..., C]``.
        branch: an operator, MLP or convolution, called as ``branch(tokens, grid)``.
        drop_path: stochastic depth.
        grid: sizes of the token grid.
        scale: factors on the skip connection.
    """
    may_be_chunked = isinstance(branch, Branch) and not branch.training and is_chunked(x)
    if may_be_chunked and not _have_hooks(norm, branch, drop_path, scale):
        rows, count = _rows_at_once(x, branch, grid)
        if count < rows.shape[1]:
            return _own(
                _in_chunks(rows, norm, branch, scale, count, out=rows if _is_owned(x) else None).view(x.shape), x
            )
    y = branch(x if norm is None else norm(x), grid)
    y = y if drop_path is None else drop_path(y)
    skip = x if scale is None else scale(x)
    if _is_owned(x) and torch.promote_types(skip.dtype, y.dtype) == x.dtype:
        return _own(torch.add(skip, y, out=x), x)
    return _own(skip + y, x)


def _is_owned(x: Tensor) -> bool:
    return x is _owned.result and is_chunked(x)


def _own(result: Tensor, x: Tensor) -> Tensor:
    if _owned.active and is_chunked(x):
        _owned.result = result
    return result


def _rows_at_once(x: Tensor, branch: Branch, grid: Sequence[int]) -> tuple[Tensor, int]:
    """A view ``[B', L, ..., C]`` of the tokens, and how many of the L to compute at a time.

    The L are all the tokens, or the rows of a 2-D grid where a convolution mixes them.
    """
    length = chunk_length(x, branch.hidden)
    if branch.dwconv is None:
        return x.reshape(1, -1, x.shape[-1]), length
    if length == x.shape[:-1].numel() or len(grid) != 2 or x.shape[1] != grid[0] * grid[1]:
        return x, x.shape[1]  # prefix tokens are in no row
    chunks = -(-x.shape[:-1].numel() // length)
    rows = -(-grid[0] // chunks)
    return x.unflatten(1, tuple(grid)), max(rows, branch.dwconv.kernel_size[0])


def _in_chunks(
    x: Tensor, norm: nn.Module | None, branch: Branch, scale: nn.Module | None, count: int, out: Tensor | None
) -> Tensor:
    """``scale(x) + branch(norm(x))`` for ``x: [B, L, ..., C]``, ``count`` of the L at a time.

    ``out`` may be ``x``: what is written was read before, since a convolution lags behind the rows that went into it.
    """
    above, done = None, 0
    for start in range(0, x.shape[1], count):
        y = x[:, start : start + count]
        y = branch.expand(y if norm is None else norm(y))
        if branch.dwconv is not None:
            y, above = _convolve(branch.dwconv, y, above, is_last=start + count >= x.shape[1])
        y = branch.reduce(y)
        skip = x[:, done : done + y.shape[1]]
        skip = skip if scale is None else scale(skip)
        dtype = torch.promote_types(skip.dtype, y.dtype)
        if out is None or out.dtype != dtype:
            out = x.new_empty(x.shape, dtype=dtype)
        torch.add(skip, y, out=out[:, done : done + y.shape[1]])
        done += y.shape[1]
    return out


def _convolve(conv: nn.Conv2d, x: Tensor, above: Tensor | None, is_last: bool) -> tuple[Tensor, Tensor]:
    """The rows of ``conv`` for which ``x: [B, R, W, C]`` completes the input, and the last rows, for the next call.

    ``above`` are those of the call before. A row is final once the rows below it are there, so no row is computed twice.
    """
    halo = conv.kernel_size[0] // 2
    border = x.new_zeros(x.shape[0], halo, *x.shape[2:])
    x = torch.cat([border if above is None else above, x, *([border] if is_last else [])], dim=1)
    y = F.conv2d(x.movedim(-1, 1), conv.weight, conv.bias, padding=(0, halo), groups=conv.groups)
    return y.movedim(1, -1), x[:, x.shape[1] - 2 * halo :]


def _have_hooks(*parts: nn.Module | None) -> bool:
    """Whether anybody watches one of the modules; chunks would call it several times, or not at all."""
    if _module._global_forward_hooks or _module._global_forward_pre_hooks:
        return True
    modules = (m for part in parts if part is not None for m in part.modules())
    return any(m._forward_hooks or m._forward_pre_hooks for m in modules)
