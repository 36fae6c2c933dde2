"""Parameters and multiply-accumulate operations (MACs) of a model, exact for its shapes and without computing anything.

If the model and the image are on the meta device, a detector at 1280x800 takes a second and no memory. Every operation that
PyTorch dispatches is counted by kind, because the papers count differently::

    conv, linear, matmul   multiply-accumulates of convolutions, linear layers and products (matmul, einsum, SDPA)
    bias                   additions of their biases, one per output element
    norm                   elements that pass a normalisation layer
    activation, softmax    elements that pass an activation function, or a softmax
    fft                    N log2 N for each channel that is transformed over N points, forward or inverse

Elementwise arithmetic counts nothing, so a product written as ``(a * b).sum()`` would be missed. Some papers also count an
operator by its formula, not by its evaluation. For such modules, ``MODULE_RULES`` has a function whose result replaces the count
of everything that ``forward`` computes itself. Submodules that ``forward`` calls (projections) are still counted by themselves.
Operators made of linear layers, convolutions, matmul, einsum and SDPA need no rule.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log2, prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode

from mmlisa.models.attention.lisa import ChannelMajorLinear, LiSA


@dataclass(frozen=True)
class Complexity:
    """Result of :func:`count`.

    Attributes:
        work: amount of each kind.
        parameters: all of the model's.
        layer_weights: those that are weights of convolutions and linear layers.
    """

    work: dict[str, float]
    parameters: int
    layer_weights: int

    def macs(self) -> float:
        """MACs of convolutions, linear layers and products, which most papers call FLOPs."""
        return sum(self.work.get(kind, 0) for kind in ("conv", "linear", "matmul"))


def count(model: nn.Module, *inputs: Any, forward: Callable[..., Any] | None = None) -> Complexity:
    """Count one forward pass in evaluation mode.

    Args:
        model: any module; on the meta device nothing is computed.
        inputs: arguments of the forward pass, on the model's device.
        forward: called as ``forward(model, *inputs)`` in place of the model itself; see :func:`forward_tables`.
    """
    modes = {module: module.training for module in model.modules()}  # a frozen norm stays in evaluation mode
    model.eval()
    tally = _Tally()
    enter = register_module_forward_pre_hook(tally.enter_module)
    leave = register_module_forward_hook(tally.leave_module)
    try:
        with enter, leave, torch.inference_mode(), tally:
            (forward or nn.Module.__call__)(model, *inputs)
    finally:
        for module, training in modes.items():
            module.training = training
    layer_weights = {id(m.weight): m.weight.numel() for m in model.modules() if isinstance(m, _WEIGHT_LAYERS)}
    return Complexity(dict(tally.work), sum(p.numel() for p in model.parameters()), sum(layer_weights.values()))


def forward_tables(model: nn.Module, image: Tensor) -> None:
    """Run the part of an OpenMMLab model that detection, segmentation and classification tables count.

    A two-stage detector runs its box head on 1000 proposals and its mask head on 100 (each stage of a cascade does),
    the custom of MMDetection's ``get_flops``; pooling, NMS and losses are free. Segmentation counts without auxiliary
    heads. Deformable attention reads values, which the meta device lacks: of Mask2Former only the backbone is counted, of DINO
    only backbone and neck.
    """
    if hasattr(getattr(model, "decode_head", None), "transformer_decoder"):
        model.backbone(image)
        return
    if hasattr(model, "panoptic_head") or hasattr(model, "dn_query_generator"):
        model.extract_feat(image)
        return
    if not hasattr(model, "roi_head"):
        model(image)
        return
    features = model.extract_feat(image)
    model.rpn_head(features)
    roi_head = model.roi_head
    for branch, num_rois in (("bbox", 1000), ("mask", 100)):
        heads, extractors = (getattr(roi_head, f"{branch}_{part}", None) for part in ("head", "roi_extractor"))
        if heads is None:
            continue
        if not isinstance(heads, nn.ModuleList):
            heads, extractors = [heads], [extractors]
        for head, extractor in zip(heads, extractors, strict=True):
            head(features[0].new_empty(num_rois, extractor.out_channels, *extractor.roi_layers[0].output_size))


_WEIGHT_LAYERS = (nn.Linear, nn.modules.conv._ConvNd)


def _linear(out: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> dict[str, float]:
    return dict(linear=out.numel() * weight.shape[-1], bias=0 if bias is None else out.numel())


def _convolution(out, x, weight, bias, stride, padding, dilation, transposed, *_) -> dict[str, float]:
    positions = x if transposed else out
    return dict(conv=positions.numel() * prod(weight.shape[1:]), bias=0 if bias is None else out.numel())


def _matmul(out: Tensor, a: Tensor, b: Tensor) -> dict[str, float]:
    return dict(matmul=out.numel() * a.shape[-1])


def _matmul_add(out: Tensor, added: Tensor, a: Tensor, b: Tensor, **_: Any) -> dict[str, float]:
    return _matmul(out, a, b)


def _sdpa(out: Tensor, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> dict[str, float]:
    n, m = query.shape[-2], key.shape[-2]
    return dict(
        matmul=prod(query.shape[:-2]) * n * m * (query.shape[-1] + value.shape[-1]),
        softmax=out.numel() // out.shape[-1] * m,
    )


def _fft(size_of: Callable[..., Tensor]) -> Callable[..., dict[str, float]]:
    def handler(out: Tensor, x: Tensor, dim: list[int], *_: Any) -> dict[str, float]:
        real = size_of(out, x)
        return dict(fft=real.numel() * log2(prod(real.shape[axis] for axis in dim)))

    return handler


def _elements(kind: str) -> Callable[..., dict[str, float]]:
    def handler(out: Tensor | tuple[Tensor, ...], x: Tensor, *_: Any, **__: Any) -> dict[str, float]:
        return {kind: x.numel()}

    return handler


# By the names of ATen's operators; the in-place twins (``relu_``) are looked up without their underscore.
_HANDLERS: dict[str, Callable[..., dict[str, float]]] = {
    "linear": _linear,
    "convolution": _convolution,
    **dict.fromkeys(("mm", "bmm", "mv", "dot"), _matmul),
    **dict.fromkeys(("addmm", "baddbmm"), _matmul_add),
    "scaled_dot_product_attention": _sdpa,
    "_fft_r2c": _fft(lambda out, x: x),
    "_fft_c2r": _fft(lambda out, x: out),
    "_fft_c2c": _fft(lambda out, x: x),
    **dict.fromkeys(("layer_norm", "group_norm", "batch_norm", "instance_norm", "rms_norm"), _elements("norm")),
    **dict.fromkeys(
        ("relu", "relu6", "gelu", "silu", "mish", "sigmoid", "tanh", "hardswish", "hardsigmoid", "hardtanh"),
        _elements("activation"),
    ),
    **dict.fromkeys(("leaky_relu", "prelu", "elu", "softplus"), _elements("activation")),
    **dict.fromkeys(("softmax", "log_softmax"), _elements("softmax")),
}


def _lisa(operator: LiSA, x: Tensor, grid: Sequence[int]) -> dict[str, float]:
    """By the paper's formula: 2 D N C products over the patterns; C forward and C D inverse FFTs for key and for value.

    Local kernels count as convolutions.
    """
    num_patterns = operator.kernel_b.shape[0]
    encoded = 2 * num_patterns * x.numel()
    if operator.local:
        return dict(matmul=encoded, conv=encoded * operator.kernel_b[0].numel())
    return dict(matmul=encoded, fft=(2 * x.numel() + encoded) * log2(x.shape[1]))


def _channel_major_linear(layer: ChannelMajorLinear, x: Tensor) -> dict[str, float]:
    tokens = x.shape[:-1].numel()
    return dict(linear=tokens * layer.weight.numel(), bias=0 if layer.bias is None else tokens * layer.out_features)


# Called with the module and the arguments of its forward.
MODULE_RULES: dict[type[nn.Module], Callable[..., dict[str, float]]] = {
    LiSA: _lisa,
    ChannelMajorLinear: _channel_major_linear,
}


class _Tally(TorchDispatchMode):
    """Adds up the work of every operation, and of every module that has a rule.

    Inference mode delivers composite operations (linear, einsum, SDPA) whole, before PyTorch takes them apart.
    """

    def __init__(self) -> None:
        super().__init__()
        self.work: Counter[str] = Counter()
        self._calls: list[bool] = []  # of the modules being called: has it a rule?

    def enter_module(self, module: nn.Module, inputs: tuple) -> None:
        rule = next((MODULE_RULES[base] for base in type(module).__mro__ if base in MODULE_RULES), None)
        if rule is not None:
            self.work.update(rule(module, *inputs))
        self._calls.append(rule is not None)

    def leave_module(self, module: nn.Module, inputs: tuple, output: Any) -> None:
        self._calls.pop()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        handler = _HANDLERS.get(func.overloadpacket.__name__.rstrip("_"))
        if handler is None:
            with self:
                out = func.decompose(*args, **kwargs)
            if out is not NotImplemented:
                return out
        out = func(*args, **kwargs)
        if handler is not None and not (self._calls and self._calls[-1]):
            self.work.update(handler(out, *args, **kwargs))
        return out
