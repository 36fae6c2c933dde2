"""Blocks and stages of the backbones: residual branches that save less for the backward pass.

In training, a linear layer of a :class:`Branch` saves what the cheap layers before it (norm, activation, depthwise convolution)
took, not what they returned. Its backward pass computes those layers again: see :func:`mmlisa.ops.linear_of`.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial, reduce
from itertools import islice
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from timm.layers import DropPath
from torch import Tensor, nn
from torch.nn.modules import module as _module
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from mmlisa.errors import UserError
from mmlisa.ops.context import records_gradients
from mmlisa.ops.recompute import linear_of

from .tokens import TOKEN_CONVOLUTIONS, ShortcutTokenConv, norm_tokens, to_map, token_conv

_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def has_hooks(module: nn.Module) -> bool:
    """Return whether calls of ``module`` run a hook, or a ``forward`` of the instance, as some libraries set it."""
    if any(getattr(_module, f"_global{name}") for name in _HOOKS):
        return True
    return "forward" in vars(module) or any(getattr(module, name) for name in _HOOKS)


class _Call(NamedTuple):
    """``function(x, *parameters)``."""

    function: Callable[..., Tensor]
    parameters: tuple[Tensor | None, ...] = ()

    def __call__(self, x: Tensor) -> Tensor:
        return self.function(x, *self.parameters)


class _Note(NamedTuple):
    """How a tensor was computed. A saved tensor has an empty set in its place, which ``torch.load`` reads as weights."""

    call: _Call
    x: Tensor
    version: int  # the tensor's; a later one means that a hook wrote into it

    def __reduce__(self) -> tuple[type[set], tuple[()]]:
        return set, ()


class LayerNorm(nn.LayerNorm):
    """``nn.LayerNorm`` that notes on its output how it was computed, so that a :class:`Branch` need not save it."""

    def forward(self, x: Tensor) -> Tensor:
        y, shape, eps = super().forward(x), self.normalized_shape, self.eps
        if records_gradients():
            call = _Call(lambda x, weight, bias: F.layer_norm(x, shape, weight, bias, eps), (self.weight, self.bias))
            y.computed_by = _Note(call, x, y._version)
        return y


class Branch(nn.Module):
    """Layers in a row on tokens ``[B, N, C]``: the base of MLPs and separable convolutions.

    Attributes:
        order: names of the layers in the order in which they are called; one that is None is left out.
        hidden: channels of the widest activation.
        dwconv: a depthwise :class:`TokenConv` of stride 1, or None; every other layer takes each token by itself.
    """

    order: ClassVar[tuple[str, ...]]
    hidden: int
    dwconv: nn.Module | None

    def layers(self) -> list[nn.Module]:
        """Return the layers in the order in which they are called."""
        return [layer for name in self.order if (layer := getattr(self, name)) is not None]

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        calls: list[_Call] = []  # cheap layers, left to the linear layer that follows
        for name in self.order:
            layer = getattr(self, name)
            if layer is None:
                continue
            is_plain = not records_gradients() or has_hooks(layer)
            if not is_plain and (call := _as_call(layer, grid)):
                calls.append(call)
            elif not is_plain and type(layer) is nn.Linear:
                x, calls = _linear(layer, x, calls), []
            else:
                x, calls = reduce(lambda x, call: call(x), calls, x), []
                # Not "is self.dwconv": torch.export makes a proxy per access if any layer of the model is shared.
                x = layer(x, grid) if name == "dwconv" else layer(x)
        return reduce(lambda x, call: call(x), calls, x)


def _linear(layer: nn.Linear, x: Tensor, calls: list[_Call]) -> Tensor:
    """``layer`` behind ``calls``, or behind the norm that returned ``x``, unless ``x`` was written since."""
    note, value = getattr(x, "computed_by", None), None
    if not calls and isinstance(note, _Note) and note.version == x._version:
        value, calls, x = x, [note.call], note.x
    functions = [(call.function, len(call.parameters)) for call in calls]

    def function(x: Tensor, *parameters: Tensor | None) -> Tensor:
        remaining = iter(parameters)
        return reduce(lambda x, f: f[0](x, *islice(remaining, f[1])), functions, x)

    inputs = [x, *(parameter for call in calls for parameter in call.parameters)]
    return linear_of(function, inputs, layer.weight, layer.bias, value=value)


def _as_call(layer: nn.Module, grid: Sequence[int]) -> _Call | None:
    """A cheap layer as a pure function; None for any other layer."""
    if type(layer) is nn.GELU:
        return _Call(partial(F.gelu, approximate=layer.approximate))
    if type(layer) is StarReLU:
        return _Call(_star_relu, (layer.scale, layer.bias))
    if type(layer) in (*TOKEN_CONVOLUTIONS.values(), ShortcutTokenConv):
        return _Call(partial(layer.function, grid=grid), (layer.weight, layer.bias))
    return None


def _star_relu(x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    scale, bias = scale.to(x.dtype), bias.to(x.dtype)
    if x.dtype == torch.float16:  # its range ends at the square of 256, so it is scaled first; that needs more memory
        x = x.relu()
        return torch.addcmul(bias, x * scale, x)
    return torch.addcmul(bias, scale, x.relu().square())


class StarReLU(nn.Module):
    """``scale relu(x)² + bias`` with learned numbers (Yu et al., "MetaFormer Baselines for Vision"), in the type of ``x``."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.bias = nn.Parameter(torch.ones(1)), nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        return _star_relu(x, self.scale, self.bias)


class SquaredReLU(nn.Module):
    """``relu(x) ** 2`` (So et al., "Primer")."""

    def forward(self, x: Tensor) -> Tensor:
        return x.relu().square()


_ACTIVATIONS = {"GELU": nn.GELU, "ReLU": nn.ReLU, "SquaredReLU": SquaredReLU}


def hidden_layers(
    channels: int, activation: str = "GELU", pre_norm: bool = False, dropout: float = 0.0
) -> dict[str, nn.Module]:
    """Return a classifier's (LayerNorm,) Linear C -> 4 C, activation, LayerNorm, (dropout) by name, in MetaFormer's order."""
    hidden = 4 * channels
    return {
        "pre_norm": nn.LayerNorm(channels, eps=1e-6) if pre_norm else nn.Identity(),
        "fc1": nn.Linear(channels, hidden),
        "activation": _ACTIVATIONS[activation](),
        "norm": nn.LayerNorm(hidden, eps=1e-6),
        "dropout": nn.Dropout(dropout),
    }


_NORMS = {"LN": LayerNorm, "BN": nn.BatchNorm1d, "SyncBN": nn.SyncBatchNorm}
_layer_norm = partial(LayerNorm, eps=1e-6)


def build_norm(cfg: dict[str, Any], channels: int) -> nn.Module:
    """Build a norm for :func:`norm_tokens`: ``dict(type='LN' | 'BN' | 'SyncBN', eps=…)``; ``requires_grad=False`` freezes it."""
    options = dict(cfg)
    name, trained = options.pop("type", None), options.pop("requires_grad", True)
    if name not in _NORMS:
        raise UserError(f"norm_cfg=dict(type={name!r}); it must be one of {sorted(_NORMS)}")
    return _NORMS[name](channels, **options).requires_grad_(trained)


class Mlp(Branch):
    """Linear, (depthwise convolution of ``conv_size``,) activation (GELU), Linear: ``[B, N, C] -> [B, N, C]``."""

    order = ("fc1", "dwconv", "act", "fc2")

    def __init__(
        self,
        channels: int,
        hidden: int,
        conv_size: int | None = None,
        *,
        act: nn.Module | None = None,
        bias: bool = True,
        grid_axes: int = 2,
    ) -> None:
        super().__init__()
        self.hidden = hidden
        self.fc1 = nn.Linear(channels, hidden, bias)
        self.dwconv = token_conv(hidden, conv_size, grid_axes) if conv_size else None
        self.act = nn.GELU() if act is None else act
        self.fc2 = nn.Linear(hidden, channels, bias)


class SepConv(Branch):
    """Pointwise C -> eC, activation (GELU), depthwise convolution, pointwise eC -> C; e is the ``expansion``."""

    order = ("pwconv1", "act", "dwconv", "pwconv2")

    def __init__(
        self,
        channels: int,
        kernel_size: int | Sequence[int] = 7,
        *,
        expansion: int = 2,
        act: nn.Module | None = None,
        bias: bool = True,
        grid_axes: int = 2,
    ) -> None:
        super().__init__()
        self.hidden = expansion * channels
        self.pwconv1 = nn.Linear(channels, self.hidden, bias)
        self.act = nn.GELU() if act is None else act
        self.dwconv = token_conv(self.hidden, kernel_size, grid_axes, bias=bias)
        self.pwconv2 = nn.Linear(self.hidden, channels, bias)


def stochastic_depth(rate: float) -> nn.Module:
    """Stochastic depth; an identity at rate 0, as in timm's blocks."""
    return DropPath(rate) if rate else nn.Identity()


class Block(nn.Module):
    """``x + DropPath(attention(norm(x)))``, then ``x + DropPath(MLP(norm(x)))``: ``[B, N, C] -> [B, N, C]``.

    Args:
        attention: a token mixer, called as ``attention(tokens, grid)``.
        mlp_ratio: hidden width of the MLP over C.
        mlp_conv: kernel size of a depthwise convolution in the MLP; None for the attribute ``mlp_conv`` of the operator, or none.
        norm: makes a norm over a number of channels. Training needs least memory with this file's :class:`LayerNorm`.
        grid_axes: axes of the token grid, 2 or 3.
    """

    def __init__(
        self,
        channels: int,
        attention: nn.Module,
        *,
        mlp_ratio: float,
        mlp_conv: int | None = None,
        drop_path: float = 0.0,
        norm: Callable[[int], nn.Module] = _layer_norm,
        grid_axes: int = 2,
    ) -> None:
        super().__init__()
        mlp_conv = mlp_conv or getattr(attention, "mlp_conv", None)
        self.norm1 = norm(channels)
        self.attn = attention
        self.norm2 = norm(channels)
        self.mlp = Mlp(channels, int(channels * mlp_ratio), mlp_conv, grid_axes=grid_axes)
        self.drop_path = stochastic_depth(drop_path)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        x = x + self.drop_path(self.attn(norm_tokens(self.norm1, x), grid))
        return x + self.drop_path(self.mlp(norm_tokens(self.norm2, x), grid))


class Stage(nn.Module):
    """A downsampling, blocks and a norm, each of them optional.

    Args:
        blocks: each called as ``block(x: [B, N, C], grid) -> [B, N, C]``.
        downsample: a module from maps ``[B, C_in, *grid]`` to tokens ``[B, N, C]`` and their grid.
        norm: of the tokens that the stage returns.
        with_cp: recompute the downsampling and each block in the backward pass.
    """

    def __init__(
        self,
        blocks: Iterable[nn.Module] = (),
        *,
        downsample: nn.Module | None = None,
        norm: nn.Module | None = None,
        with_cp: bool = False,
    ) -> None:
        super().__init__()
        self.downsample, self.blocks, self.norm, self.with_cp = downsample, nn.ModuleList(blocks), norm, with_cp

    def forward(self, x: Tensor, grid: tuple[int, ...]) -> tuple[Tensor, tuple[int, ...]]:
        """Tokens ``[B, N, C_in]`` and their grid -> ``[B, N', C]`` and theirs."""
        if self.downsample is not None:
            x = to_map(x, grid)
            x, grid = self.recompute(self.downsample, x) if self.with_cp else self.downsample(x)
        for block in self.blocks:
            x = self.recompute(block, x, grid) if self.with_cp else block(x, grid)
        return (x if self.norm is None else norm_tokens(self.norm, x)), grid

    def recompute(self, layer: nn.Module, *args: Any) -> Any:
        """Call a layer of this stage, and in training call it again in the backward pass.

        Layers with batch norms in training mode are not recomputed: running statistics would be updated twice.
        """
        if not (self.training and torch.is_grad_enabled()) or any(
            isinstance(module, _BatchNorm) and module.training for module in layer.modules()
        ):
            return layer(*args)
        return checkpoint(layer, *args, use_reentrant=False)
