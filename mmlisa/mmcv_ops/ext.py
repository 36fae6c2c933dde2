"""Contents of ``mmcv._ext`` by mmcv's names; `mmlisa.mmcv_ops.ExtensionFinder` loads this module in its place.

mmcv's Python functions allocate the tensors that an operator returns and pass them in to be filled. mmcv asks for all of its
operators at import; those that are missing here raise an error when they are called.
"""

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
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
        raise UserError(
            f"the operator {name!r} needs mmcv's compiled operators; to compile them, see docs/install.md, 'Compiled operators'"
        )

    return missing


# --- boxes: x1, y1, x2, y2; ``offset`` is 1 if x2 and y2 are the last pixels inside a box, otherwise 0


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float, offset: int) -> Tensor:
    """Return the indices of the kept boxes by falling score; no two of them overlap by more than the threshold."""
    boxes, scores = widest(boxes, scores)
    return torchvision.ops.nms(_closed(boxes, offset), scores, iou_threshold)


def softnms(
    boxes: Tensor,
    scores: Tensor,
    dets: Tensor,
    iou_threshold: float,
    sigma: float,
    min_score: float,
    method: int,
    offset: int,
) -> Tensor:
    """Lower the score of each box by its overlap with better boxes (Soft-NMS, https://arxiv.org/abs/1704.04503).

    The function fills the head of ``dets`` ``[N, 5]`` with boxes and new scores, by falling score, and returns their indices.
    ``method`` is 0 (greedy), 1 (linear) or 2 (gaussian). Boxes below ``min_score`` are dropped.
    """
    boxes, scores = widest(boxes, scores)
    remaining, selected = torch.arange(len(boxes)), []
    while len(remaining):
        best = scores.argmax()
        dets[len(selected)] = torch.cat([boxes[best], scores[best, None]])
        selected.append(remaining[best])
        iou = torchvision.ops.box_iou(_closed(boxes[best, None], offset), _closed(boxes, offset))[0]
        if method == 2:
            scores = scores * torch.exp(-iou.square() / sigma)
        else:
            scores = torch.where(iou >= iou_threshold, scores * (1 - iou if method == 1 else 0), scores)
        above = scores >= min_score
        above[best] = False
        boxes, scores, remaining = boxes[above], scores[above], remaining[above]
    return torch.stack(selected) if selected else remaining


def _closed(boxes: Tensor, offset: int) -> Tensor:
    """Return boxes whose x2 and y2 are the first pixels outside."""
    return boxes + boxes.new_tensor([0, 0, offset, offset])


# --- RoIAlign (https://arxiv.org/abs/1703.06870) with the average of the sampling points
# Regions are [N, 5]: the index of the image, then x1, y1, x2, y2 in pixels of the image. `spatial_scale` takes them to the
# feature map [B, C, H, W]. The result is [N, C, aligned_height, aligned_width].


def roi_align_forward(input: Tensor, rois: Tensor, output: Tensor, *_: Tensor, pool_mode: int, **geometry: Any) -> None:
    """Fill ``output``; mmcv's last two tensors belong to the maximum.

    Raises:
        UserError: ``pool_mode`` is the maximum, 0.
    """
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


# --- focal loss over sigmoids (https://arxiv.org/abs/1708.02002), by the formula of mmcv's CUDA kernel
# `input` is [N, C]. `target` [N] is a class; every value outside 0 ... C - 1 is background. `weight` [C] is a factor per class,
# or empty; background keeps factor 1.


def sigmoid_focal_loss_forward(
    input: Tensor, target: Tensor, weight: Tensor, output: Tensor, gamma: float, alpha: float
) -> None:
    """Fill ``output`` ``[N, C]``."""
    p, is_class = _probabilities(input, target)
    loss = torch.where(is_class, -alpha * (1 - p) ** gamma * _log(p), (alpha - 1) * p**gamma * _log(1 - p))
    output.copy_(_weighted(loss, weight, target))


def sigmoid_focal_loss_backward(
    input: Tensor, target: Tensor, weight: Tensor, grad_input: Tensor, gamma: float, alpha: float
) -> None:
    """Fill ``grad_input`` ``[N, C]``."""
    p, is_class = _probabilities(input, target)
    of_class = -alpha * (1 - p) ** gamma * (1 - p - gamma * p * _log(p))
    of_background = (alpha - 1) * p**gamma * (gamma * (1 - p) * _log(1 - p) - p)
    grad_input.copy_(_weighted(torch.where(is_class, of_class, of_background), weight, target))


def _probabilities(input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    (logits,) = widest(input)
    return logits.sigmoid(), target[:, None] == torch.arange(input.shape[1], device=input.device)


def _log(probability: Tensor) -> Tensor:
    return probability.clamp(min=torch.finfo(torch.float32).tiny).log()


def _weighted(values: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    if not weight.numel():
        return values
    factors = torch.cat([weight, weight.new_ones(1)])  # the last factor is that of the background
    is_class = (target >= 0) & (target < len(weight))
    return values * factors[target.where(is_class, len(weight))][:, None]


# --- deformable convolution (https://arxiv.org/abs/1703.06211), and its modulated form (https://arxiv.org/abs/1811.11168)
# Input and output are [B, C, H, W], `offset` is [B, 2 * groups * kH * kW, H_out, W_out] with y before x, and `mask`, which scales
# every sample, [B, groups * kH * kW, H_out, W_out].

# mmcv's names of torchvision's arguments, in torchvision's order.
_PLAIN = ("dH", "dW", "padH", "padW", "dilationH", "dilationW", "group", "deformable_group")
_MODULATED = ("stride_h", "stride_w", "pad_h", "pad_w", "dilation_h", "dilation_w", "group", "deformable_group")


def deform_conv_forward(
    input: Tensor, weight: Tensor, offset: Tensor, output: Tensor, columns: Tensor, ones: Tensor, **geometry: int
) -> None:
    """Fill ``output``; ``columns`` and ``ones`` are mmcv's work buffers."""
    output.copy_(_convolve([input, weight, offset, None, None], geometry))


def deform_conv_backward_input(*tensors: Tensor, **geometry: int) -> None:
    """Fill the gradients of the input and the offset.

    mmcv asks for the gradients in two calls, torchvision computes them in one. The gradient of the weight is therefore kept in
    ``columns``, the work buffer that mmcv passes to both calls.
    """
    input, offset, grad_output, grad_input, grad_offset, weight, columns = tensors
    gradients = _gradients(grad_output, [input, weight, offset, None, None], geometry)
    grad_input.copy_(gradients[0])
    grad_offset.copy_(gradients[2])
    columns.set_(gradients[1].to(columns.dtype))


def deform_conv_backward_parameters(*tensors: Tensor, scale: float, **geometry: int) -> None:
    """Fill the gradient of the weight."""
    input, offset, grad_output, grad_weight, columns, _ = tensors
    gradient = columns
    if columns.shape != grad_weight.shape:  # no gradient of the input or the offset was asked for
        gradient = _gradients(grad_output, [input, torch.zeros_like(grad_weight), offset, None, None], geometry)[1]
    grad_weight.copy_(scale * gradient)


def modulated_deform_conv_forward(*tensors: Tensor, with_bias: bool, **geometry: int) -> None:
    """Fill the output of the modulated form."""
    input, weight, bias, _, offset, mask, output, _ = tensors
    offset, mask = (_as_mmcv_indexes(maps, output) for maps in (offset, mask))
    output.copy_(_convolve([input, weight, offset, mask, bias if with_bias else None], geometry))


def modulated_deform_conv_backward(*tensors: Tensor, with_bias: bool, **geometry: int) -> None:
    """Fill the gradients of the modulated form."""
    input, weight, bias, _, offset, mask, _, grad_input, grad_weight, grad_bias, *of_maps, grad_output = tensors
    grad_offset, grad_mask = (_as_mmcv_indexes(maps.zero_(), grad_output) for maps in of_maps)
    offset, mask = (_as_mmcv_indexes(maps, grad_output) for maps in (offset, mask))
    gradients = _gradients(grad_output, [input, weight, offset, mask, bias if with_bias else None], geometry)
    targets = (grad_input, grad_weight, grad_offset, grad_mask, *([grad_bias] if with_bias else []))
    for target, gradient in zip(targets, gradients, strict=False):  # without a bias its gradient is left over
        target.copy_(gradient)


def _as_mmcv_indexes(maps: Tensor, output: Tensor) -> Tensor:
    """Return the first numbers of each image as maps of the output's size: so mmcv reads the maps of a finer level in DyHead."""
    size = output.shape[2:]
    if maps.shape[2:] == size:
        return maps
    return maps.flatten(1)[:, : maps.shape[1] * size.numel()].unflatten(1, (-1, *size))


def _operands(arguments: list[Tensor | None], geometry: dict[str, int]) -> list[Tensor | int | bool]:
    """Return torchvision's arguments: tensors in one dtype, None as an empty one, the geometry, and whether there is a mask."""
    input, weight, offset, mask, bias = arguments
    empty_mask, empty_bias = input.new_zeros(len(input), 1), input.new_zeros(len(weight))
    tensors = [input, weight, offset, empty_mask if mask is None else mask, empty_bias if bias is None else bias]
    names = _PLAIN if mask is None else _MODULATED
    return [*widest(*tensors), *(geometry[name] for name in names), mask is not None]


def _convolve(arguments: list[Tensor | None], geometry: dict[str, int]) -> Tensor:
    return torch.ops.torchvision.deform_conv2d(*_operands(arguments, geometry))


def _gradients(grad_output: Tensor, arguments: list[Tensor | None], geometry: dict[str, int]) -> tuple[Tensor, ...]:
    """Return the gradients of input, weight, offset, mask and bias."""
    operands = _operands(arguments, geometry)
    return torch.ops.torchvision._deform_conv2d_backward(grad_output.to(operands[0].dtype), *operands)


# --- multi-scale deformable attention (https://arxiv.org/abs/2010.04159) in the PyTorch form that mmcv uses on CPUs


def ms_deform_attn_forward(*tensors: Tensor, im2col_step: int) -> Tensor:
    """Return the attended values; the tensors are value, shapes, level starts, sampling locations and weights."""
    value, shapes, _, *sampling = tensors
    return _attend(shapes, *widest(value, *sampling)).to(value.dtype)


def ms_deform_attn_backward(*tensors: Tensor, im2col_step: int) -> None:
    """Fill the gradients of value, sampling locations and weights, the last three tensors."""
    value, shapes, _, locations, weights, grad_output, *targets = tensors
    grad_output, *inputs = widest(grad_output, value, locations, weights)
    pullback = torch.func.vjp(lambda *inputs: _attend(shapes, *inputs), *inputs)[1]
    for target, gradient in zip(targets, pullback(grad_output), strict=True):
        target.copy_(gradient)


def _attend(shapes: Tensor, value: Tensor, locations: Tensor, weights: Tensor) -> Tensor:
    from mmcv.ops.multi_scale_deform_attn import (
        multi_scale_deformable_attn_pytorch,
    )  # whose package imports this module

    return multi_scale_deformable_attn_pytorch(value, shapes, locations, weights)
