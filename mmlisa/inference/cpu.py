"""Inference on a CPU, made faster from outside the models.

:func:`optimize_for_cpu` replaces modules of a model by the classes of this file. They share the parameters of the modules that
they replace and compute the same, up to rounding:

* Linear layers of many tokens run as pointwise convolutions.
* A large map's wide activations, such as an MLP's hidden layer, do not fit a CPU's cache, and moving them costs more than
  computing them. They are computed a chunk of tokens, of rows or of channels at a time.
* Allocating memory is expensive, too. The residual sums of a stage are written into the result of its first sum.

With gradients, under tracers and on other devices, the modules compute what they computed before. So does a stage while a hook is
registered in it, because the hook could keep what is overwritten.
"""

from collections.abc import Sequence
from functools import reduce

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmlisa.models.backbones.base import Stage
from mmlisa.models.layers import (
    Branch,
    InvertedMerging,
    Residual,
    ResidualBlock,
    ShortcutTokenConv,
    has_hooks,
    norm_tokens,
    to_map,
)
from mmlisa.models.layers.blocks import StarReLU
from mmlisa.ops.context import is_traced

# With fewer tokens, preparing the weights costs more than the faster product saves.
MIN_TOKENS = 256
# Elements of a chunk's widest activation per thread: 4 MiB in fp32. Larger ones leave the cache, smaller ones make slow matrix
# products.
CHUNK = 2**20
LEAST_CHANNELS = 64  # of a chunk of channels: fewer make slow matrix products


def is_cpu_inference(x: Tensor) -> bool:
    """Return whether ``x`` is on a CPU and neither gradients nor a graph are recorded."""
    # The graph of a trace would keep what was chosen for one size.
    return x.device.type == "cpu" and not torch.is_grad_enabled() and not is_traced()


class PointwiseLinear(nn.Linear):
    """``nn.Linear`` computed as a pointwise convolution: ``[..., C_in] -> [..., C_out]``.

    PyTorch computes linear layers with MKL and convolutions with oneDNN. On AMD's CPUs, networks at 800x1344 are 1.3 to 1.7 times
    as fast with the latter in two threads, and equally fast in one. In bfloat16, oneDNN computes both.
    """

    def forward(self, x: Tensor) -> Tensor:
        is_half = torch.is_autocast_enabled("cpu") or x.dtype != torch.float32
        if is_half or not is_cpu_inference(x) or x.shape[:-1].numel() < MIN_TOKENS:
            return super().forward(x)
        pixels = x.reshape(1, 1, -1, x.shape[-1]).movedim(-1, 1)  # a map in channels-last memory
        y = F.conv2d(pixels, self.weight[:, :, None, None], self.bias)
        return y.movedim(1, -1).reshape(*x.shape[:-1], -1)


class TwoPassStarReLU(StarReLU):
    """``scale * relu(x)² + bias`` in two passes over memory instead of three: ``[..., C] -> [..., C]``."""

    def forward(self, x: Tensor) -> Tensor:
        if not is_cpu_inference(x) or _is_watched(self):
            return super().forward(x)
        x = x.relu()
        return torch.addcmul(self.bias.to(x.dtype), x, x, value=self.scale.item(), out=x)


class ChunkedMerging(InvertedMerging):
    """The merging of MILA and H-ViT³ that computes its hidden channels a chunk at a time."""

    def mix(self, x: Tensor) -> Tensor:
        hidden = self.conv.in_channels
        count = max(CHUNK * torch.get_num_threads() // max(x[:, 0].numel(), 1), LEAST_CHANNELS)
        if count >= hidden or not is_cpu_inference(x) or _is_watched(self):
            return super().mix(x)
        sums = None
        for start in range(0, hidden, count):
            part = slice(start, start + count)
            y = F.conv2d(x, self.expand.weight[part], self.expand.bias[part]).relu_()
            y = F.conv2d(y, self.conv.weight[part], self.conv.bias[part], 2, 1, groups=y.shape[1]).relu_()
            y = F.conv2d(y, self.reduce.weight[:, part], None if start else self.reduce.bias)
            sums = y if sums is None else sums.add_(y)
        return sums


class InPlaceStage(Stage):
    """A stage that writes residual sums into its own memory, and chunks the residual branches."""

    def forward(self, x: Tensor, grid: tuple[int, ...]) -> tuple[Tensor, tuple[int, ...]]:
        if self.training or not is_cpu_inference(x) or _is_watched(self):
            return super().forward(x, grid)
        if self.downsample is not None:
            x, grid = self.downsample(to_map(x, grid))
        may_overwrite = False  # the tokens may be the caller's, or those of a block that returns its input
        for block in self.blocks:
            if type(block).forward is not ResidualBlock.forward:
                x, may_overwrite = block(x, grid), False
                continue
            for residual in block.residuals():
                x, may_overwrite = _add(x, residual, grid, out=x if may_overwrite else None), True
        return (x if self.norm is None else norm_tokens(self.norm, x)), grid


_FASTER = {
    nn.Linear: PointwiseLinear,
    StarReLU: TwoPassStarReLU,
    InvertedMerging: ChunkedMerging,
    Stage: InPlaceStage,
}


def optimize_for_cpu(model: nn.Module) -> nn.Module:
    """Replace modules of ``model`` by faster ones for inference on a CPU; results change by rounding only.

    Parameters, their names and hooks stay. While a stage runs without hooks, its activations are overwritten: a wrapper module or
    a dispatch mode that keeps them must clone them.

    Returns:
        ``model`` itself, or its replacement if it is itself such a module.
    """
    faster = {m: with_class(m, _FASTER[type(m)]) for m in model.modules() if type(m) in _FASTER}
    for parent in [*model.modules()]:
        for name, child in [*parent._modules.items()]:
            if child in faster:
                parent.add_module(name, faster[child])
    return faster.get(model, model)


def with_class(module: nn.Module, kind: type[nn.Module]) -> nn.Module:
    """Return a module of the class ``kind`` that shares the parameters, submodules and hooks of ``module``."""
    replacement = kind.__new__(kind)
    vars(replacement).update(vars(module))
    return replacement


def _is_watched(module: nn.Module) -> bool:
    return any(map(has_hooks, module.modules()))


def _add(x: Tensor, residual: Residual, grid: Sequence[int], out: Tensor | None) -> Tensor:
    """Return ``residual(x, grid)``, written into ``out`` if its dtype is right; ``out`` may be ``x``."""
    branch = residual.branch
    if isinstance(branch, Branch):
        rows, count = _rows_at_once(x, branch, grid)
        if count < rows.shape[1]:
            return _in_chunks(rows, residual, count, out=rows if out is x else None).view(x.shape)
    y, skip = branch(norm_tokens(residual.norm, x), grid), residual.skip(x)
    if out is not None and torch.promote_types(skip.dtype, y.dtype) == out.dtype:
        return torch.add(skip, y, out=out)
    return skip + y


def _rows_at_once(x: Tensor, branch: Branch, grid: Sequence[int]) -> tuple[Tensor, int]:
    """Return a view ``[B', L, ..., C]`` of the tokens, and how many of the L to compute at a time.

    The L are all the tokens, or the rows of a 2-D grid if a convolution mixes them.
    """
    tokens = x.shape[:-1].numel()
    # Chunks of one size: a small last one would make slow matrix products.
    chunks = max(-(-tokens * branch.hidden // (CHUNK * torch.get_num_threads())), 1)
    if branch.dwconv is None:
        return x.reshape(1, -1, x.shape[-1]), -(-tokens // chunks)
    if chunks == 1 or len(grid) != 2 or x.shape[1] != grid[0] * grid[1]:
        return x, x.shape[1]  # prefix tokens are in no row
    return x.unflatten(1, tuple(grid)), max(-(-grid[0] // chunks), branch.dwconv.kernel_size[0])


def _in_chunks(x: Tensor, residual: Residual, count: int, out: Tensor | None) -> Tensor:
    """Return ``residual(x)`` for ``x: [B, L, ..., C]``, ``count`` of the L at a time.

    ``out`` may be ``x``: the output of a convolution lags behind its input, so only rows that were read are overwritten.
    """
    conv, layers = residual.branch.dwconv, residual.branch.layers()
    place = len(layers) if conv is None else layers.index(conv)
    above, done = None, 0
    for start in range(0, x.shape[1], count):
        y = norm_tokens(residual.norm, x[:, start : start + count])
        y = reduce(lambda y, layer: layer(y), layers[:place], y)
        if conv is not None:
            y, above = _convolve(conv, y, above, is_last=start + count >= x.shape[1])
            y = reduce(lambda y, layer: layer(y), layers[place + 1 :], y)
        skip = residual.skip(x[:, done : done + y.shape[1]])
        dtype = torch.promote_types(skip.dtype, y.dtype)
        if out is None or out.dtype != dtype:
            out = x.new_empty(x.shape, dtype=dtype)
        torch.add(skip, y, out=out[:, done : done + y.shape[1]])
        done += y.shape[1]
    return out


def _convolve(conv: nn.Conv2d, x: Tensor, above: Tensor | None, is_last: bool) -> tuple[Tensor, Tensor]:
    """Return the output rows whose input ``x: [B, R, W, C]`` completes, and the last input rows, the next call's ``above``.

    A row is final once the rows below it are there: no row is computed twice.
    """
    halo = conv.kernel_size[0] // 2
    border = x.new_zeros(x.shape[0], halo, *x.shape[2:])
    x = torch.cat([border if above is None else above, x, *([border] if is_last else [])], dim=1)
    y = F.conv2d(x.movedim(-1, 1), conv.weight, conv.bias, padding=(0, halo), groups=conv.groups).movedim(1, -1)
    if isinstance(conv, ShortcutTokenConv):
        y = y + x[:, halo : halo + y.shape[1]]
    return y, x[:, x.shape[1] - 2 * halo :]
