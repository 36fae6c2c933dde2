"""Conventions by which the papers' tables count parameters and multiply-accumulate operations (MACs).

The papers count differently, so the work of a forward pass is split by kind::

    product      multiply-accumulates of convolutions, linear layers and products (matmul, einsum, SDPA)
    bias         additions of the biases of convolutions and linear layers, one per output element
    norm         elements that pass a normalisation layer
    activation   elements that pass an activation function
    fft          N log2 N for each channel that is transformed over N points, forward or inverse

LiSA is counted by its paper's formula, however PyTorch evaluates it. What users see is :mod:`mmlisa.complexity`.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log2, prod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode

from mmlisa.complexity import forward_tables
from mmlisa.models.attention.lisa import LiSA

Work = dict[str, float]


class Counts(NamedTuple):
    """Work of each kind, all parameters, and those that are weights of convolutions and linear layers."""

    work: Work
    parameters: int
    layer_weights: int


@dataclass(frozen=True)
class Convention:
    """Counting convention of a paper's table.

    Attributes:
        weights: weight of each kind of work in the MACs.
        layer_weights_only: count as parameters only the weights of convolutions and linear layers, not all of them.
    """

    weights: Work
    layer_weights_only: bool = False

    def macs(self, counts: Counts) -> float:
        return sum(weight * counts.work.get(kind, 0) for kind, weight in self.weights.items())

    def params(self, counts: Counts) -> int:
        return counts.layer_weights if self.layer_weights_only else counts.parameters


CONVENTIONS: dict[str, Convention] = {
    "products": Convention(dict(product=1)),  # what most papers call FLOPs
    "products+fft": Convention(dict(product=1, fft=1)),
    "all layers": Convention(dict(product=1, bias=1, norm=2, activation=1)),
    "weights": Convention(dict(product=1), layer_weights_only=True),
}


def count(model: nn.Module, image: Tensor) -> Counts:
    """Count the forward pass of a model in evaluation mode, as :func:`mmlisa.complexity.forward_tables` runs it."""
    model.eval()
    tally = _Tally()
    enter = register_module_forward_pre_hook(tally.enter_module)
    leave = register_module_forward_hook(tally.leave_module)
    with enter, leave, torch.inference_mode(), tally:
        forward_tables(model, image)
    layers = (nn.Linear, nn.modules.conv._ConvNd)
    weights = {id(m.weight): m.weight.numel() for m in model.modules() if isinstance(m, layers)}
    return Counts(dict(tally.work), sum(p.numel() for p in model.parameters()), sum(weights.values()))


def _linear(out: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Work:
    return dict(product=out.numel() * weight.shape[-1], bias=0 if bias is None else out.numel())


def _convolution(out, x, weight, bias, stride, padding, dilation, transposed, *_) -> Work:
    positions = x if transposed else out
    return dict(product=positions.numel() * prod(weight.shape[1:]), bias=0 if bias is None else out.numel())


def _matmul(out: Tensor, a: Tensor, b: Tensor) -> Work:
    return dict(product=out.numel() * a.shape[-1])


def _sdpa(out: Tensor, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> Work:
    return dict(product=query.shape[:-1].numel() * key.shape[-2] * (query.shape[-1] + value.shape[-1]))


def _fft(out: Tensor, x: Tensor, dim: list[int], *_: Any) -> Work:
    real = x if out.is_complex() else out
    return dict(fft=real.numel() * log2(prod(real.shape[axis] for axis in dim)))


def _elements(kind: str) -> Callable[..., Work]:
    return lambda out, x, *_, **__: {kind: x.numel()}


_ACTIVATIONS = "relu relu6 gelu silu mish elu softplus sigmoid tanh hardswish hardsigmoid hardtanh"
_NORMS = "layer_norm group_norm batch_norm instance_norm rms_norm"
# By the names of ATen's operators; the in-place twins (``relu_``) are looked up without their underscore.
_HANDLERS: dict[str, Callable[..., Work]] = {
    "linear": _linear,
    "convolution": _convolution,
    **dict.fromkeys(("mm", "bmm", "mv", "dot"), _matmul),
    **dict.fromkeys(("addmm", "baddbmm"), lambda out, added, a, b, **_: _matmul(out, a, b)),
    "scaled_dot_product_attention": _sdpa,
    **dict.fromkeys(("_fft_r2c", "_fft_c2r", "_fft_c2c"), _fft),
    **dict.fromkeys(_NORMS.split(), _elements("norm")),
    **dict.fromkeys(_ACTIVATIONS.split(), _elements("activation")),
}
_SAME_SHAPE = {"layer_norm", "batch_norm", "gelu", "relu", "silu", "elu", "clamp"}


def _lisa(operator: LiSA, x: Tensor, grid: Sequence[int]) -> Work:
    """Count 2 D N C products over the patterns, and C forward and C D inverse FFTs for key and for value.

    Local kernels count as convolutions.
    """
    num_patterns = operator.kernel_b.shape[0]
    encoded = 2 * num_patterns * x.numel()
    if operator.local:
        return dict(product=encoded * (1 + operator.kernel_b[0].numel()))
    return dict(product=encoded, fft=(2 * x.numel() + encoded) * log2(x.shape[1]))


class _Tally(TorchDispatchMode):
    """Adds up the work of every operation outside of LiSA, and of every LiSA.

    Inference mode delivers composite operations (linear, einsum, SDPA) whole, before PyTorch takes them apart.
    """

    def __init__(self) -> None:
        super().__init__()
        self.work: Counter[str] = Counter()
        self._modules: list[nn.Module] = []  # being called

    def enter_module(self, module: nn.Module, inputs: tuple) -> None:
        if isinstance(module, LiSA):
            self.work.update(_lisa(module, *inputs))
        self._modules.append(module)

    def leave_module(self, module: nn.Module, inputs: tuple, output: Any) -> None:
        self._modules.pop()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        handler = _HANDLERS.get(func.overloadpacket.__name__.rstrip("_"))
        if handler is None:
            with self:
                out = func.decompose(*args, **kwargs)
            if out is not NotImplemented:
                return out
        if args and isinstance(args[0], Tensor) and args[0].is_meta and func.overloadpacket.__name__ in _SAME_SHAPE:
            out = torch.empty_like(args[0])  # PyTorch takes these apart in Python, which takes longer
        else:
            out = func(*args, **kwargs)
        if handler is not None and not (self._modules and isinstance(self._modules[-1], LiSA)):
            self.work.update(handler(out, *args, **kwargs))
        return out
