"""LiSA as a token mixer."""

from collections.abc import Sequence
from math import log2, prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmlisa import ops
from mmlisa.models.layers import TokenLinear
from mmlisa.ops.precision import at_least_float
from mmlisa.registry import MODELS

from .builder import check_heads


class ChannelMajorLinear(nn.Linear):
    """``nn.Linear`` on ``[B, N, C]`` whose output ``[B, N, C_out]`` lies in memory as ``[B, C_out, N]``, maps of channels.

    The operator then reads its maps as they are; turning them around costs as much as the product itself.
    """

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight.expand(x.shape[0], -1, -1)
        if self.bias is None:
            return torch.bmm(weight, x.mT).mT
        return torch.baddbmm(self.bias[:, None], weight, x.mT).mT

    def count_work(self, x: Tensor) -> dict[str, float]:
        tokens = x.shape[0] * x.shape[1]
        return dict(linear=tokens * self.weight.numel(), bias=0 if self.bias is None else tokens * self.out_features)


@MODELS.register_module()
class LiSA(nn.Module):
    """Lightweight structure-aware attention (Kwon et al., journal version, Eq. 14 and Fig. 7).

    Args:
        embed_dims: channels C.
        num_heads: heads h; the kernels are shared by all of them.
        grid: token grid of the pretraining resolution, one size per axis (H, W) or (T, H, W): the kernels' own size.
        num_patterns: structural patterns D.
        kernel_size: None for kernels of the whole grid; an odd number k for local ones, k taps along each axis (Table 3d).
        qkv_bias: bias in the query, key and value projection.
        norm: LayerNorm before the output projection (journal); the first version has none.
        encoding_bias: the bias B^a of the first version, added to the encoded key.
        resize: how the kernels reach another grid: ``'spectrum'`` resamples their spectrum exactly,
            ``'interpolate'`` interpolates their taps.
        backend: see :func:`mmlisa.ops.lisa`.

    Raises:
        ValueError: heads that do not divide the channels, an unknown ``resize`` or one that would stretch local kernels,
            or an even ``kernel_size``.
    """

    def __init__(
        self,
        embed_dims: int,
        num_heads: int,
        *,
        grid: Sequence[int],
        num_patterns: int = 8,
        kernel_size: int | None = None,
        qkv_bias: bool = True,
        norm: bool = True,
        encoding_bias: bool = False,
        resize: str = "spectrum",
        backend: str = "auto",
    ) -> None:
        super().__init__()
        if resize not in ("spectrum", "interpolate"):
            raise ValueError(f"resize is {resize!r}; it must be 'spectrum' or 'interpolate'")
        if kernel_size is not None:
            if kernel_size % 2 == 0 or resize != "spectrum":
                raise ValueError(f"kernel_size={kernel_size} must be odd, and needs resize='spectrum', not {resize!r}")
            grid = (kernel_size,) * len(grid)  # resampled to the tokens' grid, it is zero outside of the window
        self.num_heads, self.resize, self.backend = num_heads, resize, backend
        self.local = kernel_size is not None
        width = check_heads(embed_dims, num_heads)
        self.qkv = ChannelMajorLinear(embed_dims, 3 * embed_dims, bias=qkv_bias)
        self.kernel_a = nn.Parameter(torch.empty(width, num_patterns, *grid))
        self.kernel_b = nn.Parameter(torch.empty(num_patterns, *grid))
        self.bias = nn.Parameter(torch.empty(width, num_patterns))
        self.bias_a = nn.Parameter(torch.zeros(width, num_patterns)) if encoding_bias else None
        self.norm = nn.LayerNorm(embed_dims) if norm else nn.Identity()
        self.proj = TokenLinear(embed_dims, embed_dims)
        self._prepared: dict[tuple[int, ...], tuple[list, ops.LiSAKernels]] = {}
        # A circular convolution with white noise of this scale keeps the tokens' scale.
        nn.init.normal_(self.kernel_a, std=prod(grid) ** -0.5)
        nn.init.normal_(self.kernel_b, std=prod(grid) ** -0.5)
        nn.init.trunc_normal_(self.bias, std=0.02)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        """``x: [B, N, C]`` with N = prod(grid) -> ``[B, N, C]``."""
        batch, n, channels = x.shape
        grid = tuple(grid)
        if n != prod(grid):
            raise ValueError(f"LiSA needs exactly the tokens of the grid {grid}, {prod(grid)}, but got {n}")
        qkv = at_least_float(self.qkv(x).mT).view(batch, 3, self.num_heads, -1, *grid)
        query, key, value = qkv.unbind(1)
        y = self._kernels(grid)(_normalize(query), _normalize(key), value)
        y = y.view(batch, channels, n).mT.to(self.proj.weight.dtype).contiguous()
        return self.proj(self.norm(y))

    def adapt_state_dict(self, state_dict: dict[str, Tensor], prefix: str) -> None:
        """Resamples kernels of another grid, in ``state_dict``."""
        for name in ("kernel_a", "kernel_b"):
            ours, theirs = getattr(self, name), state_dict.get(prefix + name)
            axes = self.kernel_b.ndim - 1
            if theirs is not None and theirs.shape != ours.shape and theirs.shape[:-axes] == ours.shape[:-axes]:
                state_dict[prefix + name] = self._resize(theirs, ours.shape[-axes:])

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *args: Any) -> None:
        self.adapt_state_dict(state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def count_work(self, x: Tensor, grid: Sequence[int]) -> dict[str, float]:
        """The paper's count: contractions over the patterns, 2 D N C, and C forward and C D inverse FFTs on either side.

        Local kernels count as convolutions.
        """
        num_patterns = self.kernel_b.shape[0]
        encoded = 2 * num_patterns * x.numel()
        if self.local:
            return dict(matmul=encoded, conv=encoded * self.kernel_b[0].numel())
        return dict(matmul=encoded, fft=(2 * x.numel() + encoded) * log2(x.shape[1]))

    def _kernels(self, grid: tuple[int, ...]) -> ops.LiSAKernels:
        """The kernels made ready for ``grid``. Evaluation without gradients keeps those of the last two grids.

        They are made anew when a parameter has changed in place or moved, and after ``train()`` and ``eval()``: averaged
        weights are swapped in between the two, behind autograd's back.
        """
        parameters = [p for p in (self.kernel_a, self.kernel_b, self.bias, self.bias_a) if p is not None]
        with_gradient = torch.is_grad_enabled() and any(p.requires_grad for p in parameters)
        if self.training or with_gradient or torch.compiler.is_compiling() or torch.onnx.is_in_onnx_export():
            return self._prepare(grid)
        state = [(p.data_ptr(), p.dtype, None if p.is_inference() else p._version) for p in parameters]
        kept = self._prepared.pop(grid, None)
        if kept is None or kept[0] != state:
            # Kept for calls outside of inference mode as well.
            with torch.inference_mode(False), torch.no_grad():
                kept = state, self._prepare(grid)
        self._prepared = {**dict(list(self._prepared.items())[-1:]), grid: kept}
        return kept[1]

    def _prepare(self, grid: tuple[int, ...]) -> ops.LiSAKernels:
        kernels = self.kernel_a, self.kernel_b
        if self.resize == "interpolate" and self.kernel_b.shape[1:] != grid:
            kernels = (_interpolate_kernel(kernel, grid) for kernel in kernels)
        return ops.LiSAKernels.prepare(*kernels, self.bias, self.bias_a, grid=grid, backend=self.backend)

    def train(self, mode: bool = True) -> "LiSA":
        self._prepared = {}
        return super().train(mode)

    def _apply(self, fn, recurse: bool = True) -> "LiSA":  # to(), cuda(), half() …
        self._prepared = {}
        return super()._apply(fn, recurse)

    def __getstate__(self) -> dict[str, Any]:  # copies and pickles start empty
        return {**self.__dict__, "_prepared": {}}

    def _resize(self, kernel: Tensor, grid: tuple[int, ...]) -> Tensor:
        if self.resize == "spectrum":
            return ops.resize_kernel(kernel, grid)
        return _interpolate_kernel(kernel, grid)


def _normalize(x: Tensor) -> Tensor:
    """``[B, h, c, *grid]`` with norm 1 over c: ``F.normalize``, whose norm over an inner axis is eight times slower."""
    return x * x.square().sum(2, keepdim=True).clamp_min(1e-24).rsqrt()


def _interpolate_kernel(kernel: Tensor, grid: tuple[int, ...]) -> Tensor:
    """``[..., *old_grid]`` -> ``[..., *grid]`` by (bi-, tri-)linear interpolation of the taps around the origin."""
    axes = tuple(range(-len(grid), 0))
    mode = {1: "linear", 2: "bilinear", 3: "trilinear"}[len(grid)]
    centred = torch.fft.fftshift(kernel, dim=axes).flatten(0, -len(grid) - 1)[None]
    resized = F.interpolate(centred, size=grid, mode=mode, align_corners=False)[0]
    return torch.fft.ifftshift(resized.reshape(*kernel.shape[: -len(grid)], *grid), dim=axes)
