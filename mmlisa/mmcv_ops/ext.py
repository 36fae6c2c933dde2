"""Contents of ``mmcv._ext`` by mmcv's names; `mmlisa.mmcv_ops.ExtensionFinder` loads this module in its place.

mmcv's Python functions allocate the tensors that an operator returns and pass them in to be filled. mmcv asks for all of its
operators at import; those that are missing here raise an error when they are called.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

import torch
import torch.nn.functional as F
import torchvision
from torch import Tensor

from mmlisa.errors import UserError
from mmlisa.ops.context import widest


# mmdet's and mmseg's environment reports call these two.
def get_compiler_version() -> str:
    return "none: mmlisa.mmcv_ops"


def get_compiling_cuda_version() -> str:
    return "not available"


def __getattr__(name: str) -> Callable[..., NoReturn]:
    """Return a stand-in for a missing operator; calling it raises UserError."""
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def missing(*args: object, **kwargs: object) -> NoReturn:
        raise UserError(f"{name!r} needs mmcv's compiled operators; see docs/install.md, 'Compiled operators'")

    return missing


def _fill_gradients(
    targets: Iterable[Tensor], grad_output: Tensor, function: Callable[..., Tensor], *inputs: Tensor
) -> None:
    """Fill ``targets`` with the gradients of a function by its inputs."""
    leaves = [tensor.detach().requires_grad_() for tensor in widest(*inputs)]
    with torch.enable_grad():
        output = function(*leaves)
    gradients = torch.autograd.grad(output, leaves, grad_output.to(output.dtype))
    for target, gradient in zip(targets, gradients, strict=True):
        target.copy_(gradient)


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float, offset: int) -> Tensor:
    """Return the indices of the kept boxes by falling score.

    ``boxes`` are x1, y1, x2, y2; ``offset`` is 1 if x2 and y2 are the last pixels inside a box, otherwise 0.
    """
    boxes, scores = widest(boxes, scores)
    return torchvision.ops.nms(boxes + boxes.new_tensor([0, 0, offset, offset]), scores, iou_threshold)


# --- RoIAlign (https://arxiv.org/abs/1703.06870) with the average of the sampling points
# Regions are [N, 5]: the index of the image, then x1, y1, x2, y2 in pixels of the image. `spatial_scale` takes them to the
# feature map [B, C, H, W]. The result is [N, C, aligned_height, aligned_width].


def roi_align_forward(input: Tensor, rois: Tensor, output: Tensor, *_: Tensor, pool_mode: int, **geometry: Any) -> None:
    """Fill ``output``; ``pool_mode`` 0, the maximum, is a UserError, and mmcv's last two tensors are only for it."""
    if pool_mode == 0:
        raise UserError("pool_mode='max' needs mmcv's compiled operators; use pool_mode='avg'")
    output.copy_(torch.ops.torchvision.roi_align(*widest(input, rois), *_roi_geometry(**geometry)))


def roi_align_backward(*tensors: Tensor, pool_mode: int, **geometry: Any) -> None:
    """Fill the gradient of the input, the last of the tensors."""
    grad_output, rois, _, _, grad_input = tensors
    arguments = _roi_geometry(**geometry, shape=grad_input.shape)
    grad_input.copy_(torch.ops.torchvision._roi_align_backward(*widest(grad_output, rois), *arguments))


def _roi_geometry(*, shape: Sequence[int] = (), **geometry: Any) -> list[Any]:
    """Return torchvision's arguments for those of mmcv; its backward pass takes the input's shape in their midst."""
    size = [geometry[name] for name in ("spatial_scale", "aligned_height", "aligned_width")]
    return [*size, *shape, geometry["sampling_ratio"], geometry["aligned"]]


# --- focal loss over sigmoids (https://arxiv.org/abs/1708.02002)
# `input` is [N, C]. `target` [N] is a class; every value outside 0 ... C - 1 is background. `weight` [C] is a factor per class,
# or empty; background keeps factor 1.


def sigmoid_focal_loss_forward(input: Tensor, target: Tensor, weight: Tensor, output: Tensor, **options: float) -> None:
    """Fill ``output`` ``[N, C]``."""
    output.copy_(_focal_loss(*widest(input), target, weight, **options))


def sigmoid_focal_loss_backward(
    input: Tensor, target: Tensor, weight: Tensor, grad_input: Tensor, **options: float
) -> None:
    """Fill ``grad_input`` ``[N, C]``."""
    ones = torch.ones_like(input)
    _fill_gradients([grad_input], ones, lambda logits: _focal_loss(logits, target, weight, **options), input)


def _focal_loss(logits: Tensor, target: Tensor, weight: Tensor, gamma: float, alpha: float) -> Tensor:
    is_class = target[:, None] == torch.arange(logits.shape[1], device=logits.device)
    right = torch.where(is_class, logits, -logits)  # the logits of the right answers
    factors = torch.where(is_class, alpha, 1 - alpha)
    if weight.numel():
        label = target.where((target >= 0) & (target < len(weight)), len(weight))
        factors = factors * torch.cat([weight, weight.new_ones(1)])[label][:, None]
    return -factors * (gamma * F.logsigmoid(-right)).exp() * F.logsigmoid(right)


# --- deformable convolution (https://arxiv.org/abs/1703.06211), and its modulated form (https://arxiv.org/abs/1811.11168)
# Input and output are [B, C, H, W], `offset` is [B, 2 * groups * kH * kW, H_out, W_out] with y before x, and `mask`, which scales
# every sample, [B, groups * kH * kW, H_out, W_out]. torchvision counts the groups by these shapes.


def _convolution(geometry: dict[str, int]) -> Callable[..., Tensor]:
    """Return torchvision's convolution with mmcv's arguments, whose names differ between the plain and the modulated form."""
    steps = "dH dW padH padW dilationH dilationW"
    if "stride_h" in geometry:
        steps = "stride_h stride_w pad_h pad_w dilation_h dilation_w"
    numbers = [geometry[name] for name in steps.split()]
    stride, padding, dilation = zip(numbers[::2], numbers[1::2], strict=True)

    def convolve(input: Tensor, weight: Tensor, offset: Tensor, mask: Tensor | None = None, bias: Tensor | None = None):
        return torchvision.ops.deform_conv2d(input, offset, weight, bias, stride, padding, dilation, mask)

    return convolve


def deform_conv_forward(
    input: Tensor, weight: Tensor, offset: Tensor, output: Tensor, *_: Tensor, **geometry: int
) -> None:
    """Fill ``output``; mmcv's last two tensors are work buffers."""
    output.copy_(_convolution(geometry)(*widest(input, weight, offset)))


def deform_conv_backward_input(*tensors: Tensor, **geometry: int) -> None:
    """Fill the gradients of the input and the offset."""
    input, offset, grad_output, grad_input, grad_offset, weight, _ = tensors
    convolve = _convolution(geometry)
    targets = grad_input, grad_offset
    _fill_gradients(targets, grad_output, lambda x, offset: convolve(x, weight.to(x), offset), input, offset)


def deform_conv_backward_parameters(*tensors: Tensor, scale: float, **geometry: int) -> None:
    """Fill the gradient of the weight, of which mmcv passes only the shape; it does not depend on the weight."""
    input, offset, grad_output, grad_weight, *_ = tensors
    convolve, (input, offset) = _convolution(geometry), widest(input, offset)
    zeros = torch.zeros_like(grad_weight)
    _fill_gradients([grad_weight], grad_output * scale, lambda weight: convolve(input, weight, offset), zeros)


def modulated_deform_conv_forward(*tensors: Tensor, with_bias: bool, **geometry: int) -> None:
    """Fill the output of the modulated form."""
    input, weight, bias, _, offset, mask, output, _ = tensors
    output.copy_(_convolution(geometry)(*widest(input, weight, offset, mask, *([bias] if with_bias else []))))


def modulated_deform_conv_backward(*tensors: Tensor, with_bias: bool, **geometry: int) -> None:
    """Fill the gradients of the modulated form."""
    input, weight, bias, _, offset, mask, _, *gradients, grad_output = tensors
    grad_input, grad_weight, grad_bias, grad_offset, grad_mask = gradients
    inputs, targets = [input, weight, offset, mask], [grad_input, grad_weight, grad_offset, grad_mask]
    if with_bias:
        inputs.append(bias)
        targets.append(grad_bias)
    _fill_gradients(targets, grad_output, _convolution(geometry), *inputs)


# --- multi-scale deformable attention (https://arxiv.org/abs/2010.04159) in the PyTorch form that mmcv uses on CPUs


def ms_deform_attn_forward(*tensors: Tensor, im2col_step: int) -> Tensor:
    """Return the attended values; the tensors are value, shapes, level starts, sampling locations and weights."""
    value, shapes, _, *sampling = tensors
    return _attention(shapes)(*widest(value, *sampling)).to(value.dtype)


def ms_deform_attn_backward(*tensors: Tensor, im2col_step: int) -> None:
    """Fill the gradients of value, sampling locations and weights, the last three tensors."""
    value, shapes, _, locations, weights, grad_output, *targets = tensors
    _fill_gradients(targets, grad_output, _attention(shapes), value, locations, weights)


def _attention(shapes: Tensor) -> Callable[..., Tensor]:
    from mmcv.ops import multi_scale_deform_attn as mmcv  # whose package imports this module

    return lambda value, *sampling: mmcv.multi_scale_deformable_attn_pytorch(value, shapes, *sampling)
