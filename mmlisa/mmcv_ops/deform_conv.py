"""Deformable convolution (https://arxiv.org/abs/1703.06211) and its modulated form (https://arxiv.org/abs/1811.11168).

Shapes: input and output are ``[B, C, H, W]``, ``offset`` is ``[B, 2 * groups * kH * kW, H_out, W_out]`` with y before x, and
``mask``, which scales every sample, ``[B, groups * kH * kW, H_out, W_out]``.
"""

import torch
import torchvision  # noqa: F401 (registers torch.ops.torchvision)
from torch import Tensor

from mmlisa.ops.precision import widest

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
        arguments = [input, torch.zeros_like(grad_weight), offset, None, None]
        gradient = _gradients(grad_output, arguments, geometry)[1]
    grad_weight.copy_(scale * gradient)


def modulated_deform_conv_forward(*tensors: Tensor, with_bias: bool, **geometry: int) -> None:
    """Fill the output of the modulated form."""
    input, weight, bias, _, offset, mask, output, _ = tensors
    offset, mask = (_read(maps, output) for maps in (offset, mask))
    output.copy_(_convolve([input, weight, offset, mask, bias if with_bias else None], geometry))


def modulated_deform_conv_backward(*tensors: Tensor, with_bias: bool, **geometry: int) -> None:
    """Fill the gradients of the modulated form."""
    input, weight, bias, _, offset, mask, _, *targets, grad_output = tensors
    grad_input, grad_weight, grad_bias, grad_offset, grad_mask = targets
    grad_offset, grad_mask = (_read(maps.zero_(), grad_output) for maps in (grad_offset, grad_mask))
    offset, mask = (_read(maps, grad_output) for maps in (offset, mask))
    arguments = [input, weight, offset, mask, bias if with_bias else None]
    gradients = _gradients(grad_output, arguments, geometry)
    for target, gradient in zip((grad_input, grad_weight, grad_offset, grad_mask), gradients[:4], strict=True):
        target.copy_(gradient)
    if with_bias:
        grad_bias.copy_(gradients[4])


def _read(maps: Tensor, output: Tensor) -> Tensor:
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
