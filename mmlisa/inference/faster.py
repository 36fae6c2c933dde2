"""Faster predictions from outside the models: modules replaced by ones of other classes that share their parameters."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from mmengine.model import BaseModel
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from mmlisa.errors import UserError
from mmlisa.models.backbones import ivit
from mmlisa.models.layers.blocks import Block, Branch, StarReLU, has_hooks
from mmlisa.models.layers.tokens import InvertedMerging, norm_tokens
from mmlisa.ops import at_least_fp32
from mmlisa.ops.context import is_traced

# With fewer tokens, preparing the weights costs more than the faster product saves.
MIN_TOKENS = 256
# Elements of a chunk's widest activation per thread: 4 MiB in fp32. Larger ones leave the cache, smaller ones make slow matrix
# products.
CHUNK = 2**20
LEAST_CHANNELS = 64  # of a chunk of channels: fewer make slow matrix products
# The parts of models of mmdet, mmseg and mmpretrain whose results are maps, logits or vectors. A detector's heads stay in fp32:
# bfloat16 rounds a coordinate beyond 512 pixels by up to 2, and mmcv's compiled operators on CPUs do not take it.
PARTS = ("backbone", "neck", "decode_head", "head")


def optimize_for_cpu(model: nn.Module) -> nn.Module:
    """Replace modules of ``model`` by faster ones for inference on a CPU; results change by rounding only.

    Parameters, their names and hooks stay. With gradients, under tracers and on other devices, the modules compute what they
    computed before.

    Returns:
        ``model`` itself, or its replacement if it is itself such a module.
    """
    faster = {m: _with_class(m, kind) for m in model.modules() if (kind := _faster_class(type(m)))}
    for parent in [*model.modules()]:
        for name, child in [*parent._modules.items()]:
            if child in faster:
                parent.add_module(name, faster[child])
    return faster.get(model, model)


def use_half(model: nn.Module, dtype: str | None = None) -> None:
    """Replace the parts of mmdet's, mmseg's or mmpretrain's models within ``model`` by such that compute in half precision.

    Args:
        model: such a model, or one around it, on the device on which it runs.
        dtype: ``'bfloat16'`` or ``'float16'``; None for bfloat16 on a CPU and float16 elsewhere, as MMEngine chooses.

    Raises:
        UserError: another ``dtype``, or a model without such parts, which would predict in fp32.
    """
    device = next(model.parameters()).device.type
    dtype = dtype or ("bfloat16" if device == "cpu" else "float16")
    if dtype not in ("bfloat16", "float16"):
        raise UserError(f"dtype is '{dtype}'; use 'bfloat16' or 'float16'")
    models = [module for module in model.modules() if isinstance(module, BaseModel)]
    parts = [(each, name) for each in models for name in PARTS if isinstance(getattr(each, name, None), nn.Module)]
    if not parts:
        raise UserError(f"dtype is '{dtype}', but {type(model).__name__} has none of {', '.join(PARTS)}; leave it out")
    for parent, name in parts:
        part = getattr(parent, name)
        half = _with_class(part, _joined(type(part).__name__, (_InHalf, type(part))))
        half.half = (device, getattr(torch, dtype))
        parent.add_module(name, half)


def _faster_class(kind: type[nn.Module]) -> type[nn.Module] | None:
    if issubclass(kind, Branch) and kind.forward is Branch.forward:
        return _joined(kind.__name__, (_InChunks, kind))
    for base, lean in ((Block, LeanBlock), (ivit.Block, LeanIViTBlock)):
        if issubclass(kind, base) and not issubclass(kind, lean):
            return lean if kind is base else _joined(kind.__name__, (kind, lean))
    return {nn.Linear: PointwiseLinear, StarReLU: TwoPassStarReLU, InvertedMerging: ChunkedMerging}.get(kind)


class _Joined:
    """A class that is made of two others when a model is loaded. Its modules are pickled as these two and their state."""

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        kind = type(self)
        return _restore, (kind.__name__, kind.__bases__[1:]), super().__reduce_ex__(protocol)[2]


@cache
def _joined(name: str, bases: tuple[type[nn.Module], ...]) -> type[nn.Module]:
    return type(name, (_Joined, *bases), {})


def _restore(name: str, bases: tuple[type[nn.Module], ...]) -> nn.Module:
    kind = _joined(name, bases)
    return kind.__new__(kind)


def _with_class(module: nn.Module, kind: type[nn.Module]) -> nn.Module:
    """Return a module of the class ``kind`` that shares the parameters, submodules and hooks of ``module``."""
    replacement = kind.__new__(kind)
    vars(replacement).update(vars(module))
    return replacement


def is_cpu_inference(x: Tensor) -> bool:
    """Return whether ``x`` is on a CPU and neither gradients nor a graph are recorded."""
    # The graph of a trace would keep what was chosen for one size.
    return x.device.type == "cpu" and not torch.is_grad_enabled() and not is_traced()


def _may_chunk(module: nn.Module, x: Tensor) -> bool:
    """Return whether no batch norm and no hook within ``module`` would see that it gets ``x`` in parts."""
    return is_cpu_inference(x) and not module.training and not any(map(has_hooks, module.modules()))


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
        if not is_cpu_inference(x):
            return super().forward(x)
        x = x.relu()
        return torch.addcmul(self.bias.to(x.dtype), x, x, value=self.scale.item(), out=x)


class ChunkedMerging(InvertedMerging):
    """The merging of MILA and H-ViT³ that computes its hidden channels a chunk at a time.

    The two networks at 800x1344 are 1.15 times as fast with it in two threads.
    """

    def mix(self, x: Tensor) -> Tensor:
        hidden = self.conv.in_channels
        count = max(CHUNK * torch.get_num_threads() // max(x[:, 0].numel(), 1), LEAST_CHANNELS)
        if count >= hidden or not _may_chunk(self, x):
            return super().mix(x)
        sums = None
        for start in range(0, hidden, count):
            part = slice(start, start + count)
            y = F.conv2d(x, self.expand.weight[part], self.expand.bias[part]).relu_()
            y = F.conv2d(y, self.conv.weight[part], self.conv.bias[part], 2, 1, groups=y.shape[1]).relu_()
            y = F.conv2d(y, self.reduce.weight[:, part], None if start else self.reduce.bias)
            sums = y if sums is None else sums.add_(y)
        return sums


def _in_chunks(
    compute: Callable[[Tensor, Sequence[int]], Tensor],
    branch: Branch,
    x: Tensor,
    grid: Sequence[int],
    may_overwrite: bool = False,
) -> Tensor:
    """``compute(x, grid)``, of which ``branch`` is the widest part, for a chunk of tokens, or of a map's rows, at a time.

    The wide activations of a large map, such as an MLP's hidden layer, do not fit a CPU's cache, and moving them costs more than
    computing them: HyLiSANet-S and iViT-T at 800x1344 are 1.2 to 1.5 times as fast in chunks in two threads.
    """
    tokens = x.shape[:-1].numel()
    # Chunks of one size: a small last one would make slow matrix products.
    chunks = -(-tokens * branch.hidden // (CHUNK * torch.get_num_threads()))
    in_rows = len(grid) == 2 and x.shape[1] == grid[0] * grid[1]  # prefix tokens are in no row
    if chunks < 2 or not (branch.dwconv is None or in_rows):
        return compute(x, grid)
    if branch.dwconv is None:
        rows, height, width, halo = x.reshape(1, tokens, -1), tokens, 1, 0
    else:
        rows, (height, width), halo = x, grid, branch.dwconv.kernel_size[0] // 2
    count, out = -(-height // chunks), rows if may_overwrite and not halo else None
    for start in range(0, height, count):
        first, last = max(start - halo, 0), min(start + count + halo, height)
        y = compute(rows[:, first * width : last * width], (last - first, width))
        if out is None or out.dtype != y.dtype:
            out = rows.new_empty(rows.shape, dtype=y.dtype)
        out[:, start * width : (start + count) * width] = y[:, (start - first) * width :][:, : count * width]
    return out.view(x.shape)


class _InChunks(Branch):
    """The class put before a branch's own: its forward pass in chunks."""

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        return _in_chunks(super().forward, self, x, grid) if _may_chunk(self, x) else super().forward(x, grid)


class LeanBlock(Block):
    """A block that computes norms and sums in chunks, too: fewer maps are in memory at a time."""

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        if not _may_chunk(self, x):
            return super().forward(x, grid)
        x = _add(x, self.norm1, self.attn, grid)
        return _add(x, self.norm2, self.mlp, grid, may_overwrite=True)  # the first sum is this block's


class LeanIViTBlock(ivit.Block):
    """The same for iViT."""

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        if not _may_chunk(self, x):
            return super().forward(x, grid)
        x = _add(x, self.norm1, self.token_mixer, grid, self.res_scale1)
        return _add(x, self.norm2, self.mlp, grid, self.res_scale2, may_overwrite=True)


def _add(
    x: Tensor,
    norm: nn.Module,
    branch: nn.Module,
    grid: Sequence[int],
    scale: Callable[[Tensor], Tensor] = lambda x: x,
    may_overwrite: bool = False,
) -> Tensor:
    """``scale(x) + branch(norm(x))``; a :class:`Branch` in chunks."""

    def compute(x: Tensor, grid: Sequence[int]) -> Tensor:
        return scale(x) + branch(norm_tokens(norm, x), grid)

    if not isinstance(branch, Branch):
        return compute(x, grid)
    return _in_chunks(compute, branch, x, grid, may_overwrite)


class _InHalf(nn.Module):
    """The class put before a module's own: the forward pass runs under autocast and returns fp32."""

    half: tuple[str, torch.dtype]

    def forward(self, *args: Any, **options: Any) -> Any:
        with torch.autocast(*self.half):
            y = super().forward(*args, **options)
        return tree_map_only(Tensor, at_least_fp32, y)
