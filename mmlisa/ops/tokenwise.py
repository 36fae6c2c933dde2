"""Token-wise layers on a CPU, in pieces that stay in cache."""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Elements of a piece's widest activation per thread: 4 MiB in fp32. More does not stay in cache, less makes slow matrix products.
PIECE = 2**20


def is_cpu_inference(x: Tensor) -> bool:
    """On a CPU, without gradients, and in no trace, whose graph would keep what was chosen for one size."""
    is_traced = torch.compiler.is_compiling() or torch.jit.is_tracing()
    return x.device.type == "cpu" and not torch.is_grad_enabled() and not is_traced


def tokens_at_once(x: Tensor, width: int) -> int:
    """How many tokens of ``x: [..., C]`` to treat at a time, so that ``width`` channels of each stay in cache.

    All of them where it makes no difference, or where a loop would be in the way.
    """
    total = x.shape[:-1].numel()
    if not is_cpu_inference(x):
        return total
    pieces = max(-(-total * width // (PIECE * torch.get_num_threads())), 1)
    return -(-total // pieces)  # pieces of one size: a small last one would make slow matrix products


def tokenwise(function: Callable[[Tensor], Tensor], x: Tensor, *, width: int) -> Tensor:
    """``function(x)``, for a function that treats every token alone (an MLP with its norm and residual).

    Inference on a CPU calls it for some tokens at a time and puts the result over ``x``, which must be the caller's own: the
    wide activations of a large image then never leave the cache, which is several times faster and needs no memory. Everywhere
    else it is called once.

    Args:
        function: ``[..., C]`` -> ``[..., C]``, of the same dtype.
        x: its argument.
        width: channels of its widest activation.
    """
    count = tokens_at_once(x, width)
    if count == x.shape[:-1].numel():
        return function(x)
    x = x.contiguous()
    for piece in x.view(-1, x.shape[-1]).split(count):
        piece.copy_(function(piece))
    return x


def add_in_bands(x: Tensor, layers: Sequence[Callable[[Tensor], Tensor]], *, width: int) -> Tensor:
    """``x + layer_n(… layer_1(x))``: functions of single pixels, and at most one convolution of stride 1 that keeps the size.

    Where :func:`tokenwise` would cut, this goes over the map in bands of rows and adds them to ``x``, which must be the caller's
    own: the wide maps never leave the cache. A band follows on the last rows of the one before, so that no row is computed twice.

    Args:
        x: ``[B, C, *grid]`` in channels-last memory, of the layers' dtype or a wider one; only 2-D grids are cut.
        layers: ``[B, C', H, W]`` -> ``[B, C'', H, W]`` each, from C to C channels; the convolution, of
            a square kernel, as an ``nn.Conv2d``.
        width: channels of the widest activation.
    """
    conv = next((layer for layer in layers if isinstance(layer, nn.Conv2d) and layer.kernel_size[0] > 1), None)
    at, halo = (len(layers), 0) if conv is None else (layers.index(conv), conv.kernel_size[0] // 2)
    rows = tokens_at_once(x.movedim(1, -1), width) // (x.shape[0] * x.shape[-1]) if x.ndim == 4 else 0
    if not 2 * halo < rows < x.shape[2]:
        return add_residual(x, _chain(layers, x))
    above, done = None, 0
    for start in range(0, x.shape[2], rows):
        band = _chain(layers[:at], x[:, :, start : start + rows])
        if conv is not None:
            border = band.new_zeros(band.shape[0], halo, band.shape[3], band.shape[1]).movedim(-1, 1)
            is_last = start + rows >= x.shape[2]
            band = torch.cat([border if above is None else above, band, *([border] if is_last else [])], dim=2)
            above = band[:, :, -2 * halo :]
            band = F.conv2d(band, conv.weight, conv.bias, padding=(0, halo), groups=conv.groups)
        band = _chain(layers[at + 1 :], band)
        # These rows of x have been read: the convolution is behind the rows that went into it.
        x[:, :, done : done + band.shape[2]] += band
        done += band.shape[2]
    return x


def _chain(layers: Sequence[Callable[[Tensor], Tensor]], x: Tensor) -> Tensor:
    for layer in layers:
        x = layer(x)
    return x


def add_residual(x: Tensor, branch: Tensor) -> Tensor:
    """``x + branch``; without gradients in the memory of ``branch``, which must be the caller's own.

    On a CPU, touching the pages of a new large map takes longer than the sum.
    """
    if torch.is_grad_enabled() or branch.dtype != x.dtype:
        return x + branch
    return branch.add_(x)
