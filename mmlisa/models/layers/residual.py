"""Residual branches, and how they are computed.

In training, a :class:`Branch` keeps what its linear layers return; norms, activations and depthwise convolutions, which cost
little beside, are computed again in the backward pass: see :func:`mmlisa.ops.linear_of`.

A large map's wide activations, such as an MLP's hidden layer, do not fit a CPU's cache, and moving them costs more than computing
them; so does touching new memory. In inference on a CPU a :class:`Branch` is therefore computed a chunk of tokens, or of rows, at
a time, and a stage adds its branches in place, in memory that it made itself and that nobody watches.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain, islice
from threading import local
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules import module as _module

from mmlisa import ops
from mmlisa.ops.chunks import chunk_length, is_chunked

from .activations import StarReLU
from .tokens import TokenConv, TokenConv3d, convolve

_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


class Branch(nn.Module):
    """Layers in a row on tokens ``[B, N, C]``: what MLPs and separable convolutions have in common.

    Attributes:
        hidden: channels of the widest activation.
        dwconv: a depthwise :class:`TokenConv` of stride 1, or None; every other layer takes each token by itself.
    """

    hidden: int
    dwconv: nn.Module | None

    def layers(self) -> list[nn.Module]:
        """In the order in which they are called."""
        raise NotImplementedError

    def expand(self, x: Tensor) -> Tensor:
        """The layers before the convolution, all where there is none: ``[..., C] -> [..., hidden]``."""
        for layer in self._split()[0]:
            x = layer(x)
        return x

    def reduce(self, x: Tensor) -> Tensor:
        """The layers after the convolution: ``[..., hidden] -> [..., C]``."""
        for layer in self._split()[1]:
            x = layer(x)
        return x

    def _split(self) -> tuple[list[nn.Module], list[nn.Module]]:
        layers = self.layers()
        if self.dwconv is None:
            return layers, []
        place = layers.index(self.dwconv)
        return layers[:place], layers[place + 1 :]

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
    if isinstance(branch, Branch) and torch.is_grad_enabled() and not _have_hooks(norm, branch):
        y = _recomputing(x, norm, branch, grid)
    else:
        y = branch(x if norm is None else norm(x), grid)
    y = y if drop_path is None else drop_path(y)
    skip = x if scale is None else scale(x)
    if _is_owned(x) and torch.promote_types(skip.dtype, y.dtype) == x.dtype:
        return _own(torch.add(skip, y, out=x), x)
    return _own(skip + y, x)


def _recomputing(x: Tensor, norm: nn.Module | None, branch: Branch, grid: Sequence[int]) -> Tensor:
    """``branch(norm(x), grid)``, where a linear layer keeps what the cheap layers before it take, not what they return."""
    cheap = _Chain()
    for layer in [*([] if norm is None else [norm]), *branch.layers()]:
        pure = _as_function(layer, grid)
        if pure is not None:
            cheap = _Chain((*cheap.functions, pure[0]), (*cheap.tensors, pure[1]))
            continue
        if type(layer) is nn.Linear:
            x = ops.linear_of(cheap, [x, *cheap.parameters()], layer.weight, layer.bias)
        else:
            x = cheap(x, *cheap.parameters())
            x = layer(x, grid) if layer is branch.dwconv else layer(x)
        cheap = _Chain()
    return cheap(x, *cheap.parameters())


class _Chain(NamedTuple):
    """Functions of tokens and parameters, one after the other, as one function of the tokens and all parameters."""

    functions: tuple[Callable[..., Tensor], ...] = ()
    tensors: tuple[tuple[Tensor | None, ...], ...] = ()

    def parameters(self) -> Iterator[Tensor | None]:
        return chain.from_iterable(self.tensors)

    def __call__(self, x: Tensor, *parameters: Tensor | None) -> Tensor:
        rest = iter(parameters)
        for function, own in zip(self.functions, self.tensors, strict=True):
            x = function(x, *islice(rest, len(own)))
        return x


def _as_function(
    layer: nn.Module, grid: Sequence[int]
) -> tuple[Callable[..., Tensor], tuple[Tensor | None, ...]] | None:
    """A cheap layer as a pure function of tokens and its parameters; None for any other, which is called as it is."""
    if type(layer) is nn.LayerNorm:
        shape, eps = layer.normalized_shape, layer.eps
        return lambda x, weight, bias: F.layer_norm(x, shape, weight, bias, eps), (layer.weight, layer.bias)
    if type(layer) is nn.GELU:
        return partial(F.gelu, approximate=layer.approximate), ()
    if type(layer) is StarReLU:
        return ops.star_relu, (layer.scale, layer.bias)
    if type(layer) in (TokenConv, TokenConv3d):
        return partial(convolve, grid=grid), (layer.weight, layer.bias)
    return None


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
    """Whether anybody watches one of the modules, which may be called several times, or not at all."""
    if any(getattr(_module, f"_global{kind}") for kind in _HOOKS):
        return True
    modules = (m for part in parts if part is not None for m in part.modules())
    # A method of one module alone is how some libraries wrap it.
    return any("forward" in vars(m) or any(getattr(m, kind) for kind in _HOOKS) for m in modules)
