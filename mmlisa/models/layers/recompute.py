"""Residual branches that save less for the backward pass.

In training, a linear layer of a :class:`Branch` saves what the cheap layers before it (norm, activation, depthwise convolution)
took, not what they returned. Its backward pass computes those layers again: see :func:`mmlisa.ops.linear_of`.
"""

from collections.abc import Callable, Sequence
from functools import partial, reduce
from itertools import islice
from typing import NamedTuple

import torch
import torch.nn.functional as F
from timm.models.metaformer import StarReLU
from torch import Tensor, nn

from mmlisa.ops import linear_of
from mmlisa.ops.context import is_traced, is_transformed

from .hooks import has_hooks
from .tokens import TOKEN_CONVOLUTIONS, ShortcutTokenConv


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
        if _records_gradients():
            call = _Call(lambda x, weight, bias: F.layer_norm(x, shape, weight, bias, eps), (self.weight, self.bias))
            y.computed_by = _Note(call, x, y._version)
        return y


class Branch(nn.Module):
    """Layers in a row on tokens ``[B, N, C]``: the base of MLPs and separable convolutions.

    Attributes:
        hidden: channels of the widest activation.
        dwconv: a depthwise :class:`TokenConv` of stride 1, or None; every other layer takes each token by itself.
    """

    hidden: int
    dwconv: nn.Module | None

    def layers(self) -> list[nn.Module]:  # in the order in which they are called
        raise NotImplementedError

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        calls: list[_Call] = []  # cheap layers, left to the linear layer that follows
        for layer in self.layers():
            is_plain = not _records_gradients() or has_hooks(layer)
            if not is_plain and (call := _as_call(layer, grid)):
                calls.append(call)
            elif not is_plain and type(layer) is nn.Linear:
                x, calls = _linear(layer, x, calls), []
            else:
                x, calls = reduce(lambda x, call: call(x), calls, x), []
                x = layer(x, grid) if layer is self.dwconv else layer(x)
        return reduce(lambda x, call: call(x), calls, x)


def _linear(layer: nn.Linear, x: Tensor, calls: list[_Call]) -> Tensor:
    """``layer`` behind ``calls``, or behind the norm that returned ``x``, unless ``x`` was written since."""
    note, value = getattr(x, "computed_by", None), None
    if not calls and isinstance(note, _Note) and note.version == x._version:
        value, calls, x = x, [note.call], note.x
    functions = [(call.function, len(call.parameters)) for call in calls]

    def function(x: Tensor, *parameters: Tensor | None) -> Tensor:
        rest = iter(parameters)
        return reduce(lambda x, f: f[0](x, *islice(rest, f[1])), functions, x)

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
    return torch.addcmul(bias, scale, x.relu().square())


def _records_gradients() -> bool:
    return torch.is_grad_enabled() and not is_traced() and not is_transformed()
