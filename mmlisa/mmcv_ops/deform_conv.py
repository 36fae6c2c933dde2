"""Deformable convolution (https://arxiv.org/abs/1703.06211), and with modulation (https://arxiv.org/abs/1811.11168)."""

import torch
import torchvision  # noqa: F401 (registers torch.ops.torchvision)
from torch import Tensor

from .precision import widest


def deform_conv_forward(
    input: Tensor, weight: Tensor, offset: Tensor, output: Tensor, columns: Tensor, ones: Tensor, **geometry: int
) -> None:
    """Fills ``output``, ``[B, C_out, H_out, W_out]``; ``offset`` is ``[B, 2 * groups * kH * kW, H_out, W_out]``, y before x."""
    output.copy_(_convolve(input, weight, offset, None, None, _plain(geometry)))


def deform_conv_backward_input(
    input: Tensor,
    offset: Tensor,
    gradOutput: Tensor,
    gradInput: Tensor,
    gradOffset: Tensor,
    weight: Tensor,
    columns: Tensor,
    **geometry: int,
) -> None:
    grad_input, grad_weight, grad_offset, *_ = _gradients(
        gradOutput, input, weight, offset, None, None, _plain(geometry)
    )
    gradInput.copy_(grad_input)
    gradOffset.copy_(grad_offset)
    # mmcv asks for the gradients in two calls, torchvision computes them in one: the second call finds its own in the buffer
    # that mmcv hands to both.
    columns.set_(grad_weight.to(columns.dtype))


def deform_conv_backward_parameters(
    input: Tensor,
    offset: Tensor,
    gradOutput: Tensor,
    gradWeight: Tensor,
    columns: Tensor,
    ones: Tensor,
    scale: float,
    **geometry: int,
) -> None:
    if columns.shape == gradWeight.shape:
        grad_weight = columns
    else:  # neither the input nor the offset asked for a gradient
        weight = torch.zeros_like(gradWeight)
        grad_weight = _gradients(gradOutput, input, weight, offset, None, None, _plain(geometry))[1]
    gradWeight.copy_(scale * grad_weight)


def modulated_deform_conv_forward(
    input: Tensor,
    weight: Tensor,
    bias: Tensor,
    ones: Tensor,
    offset: Tensor,
    mask: Tensor,
    output: Tensor,
    columns: Tensor,
    with_bias: bool,
    **geometry: int,
) -> None:
    """The same with every sample scaled by ``mask`` ``[B, deformable_group * kernel_h * kernel_w, H_out, W_out]``."""
    output.copy_(_convolve(input, weight, offset, mask, bias if with_bias else None, _modulated(geometry)))


def modulated_deform_conv_backward(
    input: Tensor,
    weight: Tensor,
    bias: Tensor,
    ones: Tensor,
    offset: Tensor,
    mask: Tensor,
    columns: Tensor,
    grad_input: Tensor,
    grad_weight: Tensor,
    grad_bias: Tensor,
    grad_offset: Tensor,
    grad_mask: Tensor,
    grad_output: Tensor,
    with_bias: bool,
    **geometry: int,
) -> None:
    arguments = (input, weight, offset, mask, bias if with_bias else None)
    gradients = _gradients(grad_output, *arguments, _modulated(geometry))
    for target, value in zip((grad_input, grad_weight, grad_offset, grad_mask), gradients[:4], strict=True):
        target.copy_(value)
    if with_bias:
        grad_bias.copy_(gradients[4])


def _plain(geometry: dict[str, int]) -> list[int]:
    """torchvision's arguments from those of mmcv's deform_conv_*."""
    names = ("dH", "dW", "padH", "padW", "dilationH", "dilationW", "group", "deformable_group")
    return [geometry[name] for name in names]


def _modulated(geometry: dict[str, int]) -> list[int]:
    """torchvision's arguments from those of mmcv's modulated_deform_conv_*."""
    sizes = [geometry[f"{name}_{axis}"] for name in ("stride", "pad", "dilation") for axis in "hw"]
    return [*sizes, geometry["group"], geometry["deformable_group"]]


def _operands(
    input: Tensor, weight: Tensor, offset: Tensor, mask: Tensor | None, bias: Tensor | None
) -> tuple[list[Tensor], bool]:
    """What torchvision takes, with empty tensors for what is not there, in one type; and whether there is a mask."""
    tensors = [
        input,
        weight,
        offset,
        input.new_zeros(len(input), 1) if mask is None else mask,
        input.new_zeros(len(weight)) if bias is None else bias,
    ]
    return widest(*tensors), mask is not None


def _convolve(input: Tensor, weight: Tensor, offset: Tensor, mask: Tensor | None, bias: Tensor | None, geometry: list):
    tensors, modulated = _operands(input, weight, offset, mask, bias)
    return torch.ops.torchvision.deform_conv2d(*tensors, *geometry, modulated)


def _gradients(
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    offset: Tensor,
    mask: Tensor | None,
    bias: Tensor | None,
    geometry: list,
) -> tuple[Tensor, ...]:
    """Those of input, weight, offset, mask and bias."""
    tensors, modulated = _operands(input, weight, offset, mask, bias)
    backward = torch.ops.torchvision._deform_conv2d_backward
    return backward(grad_output.to(tensors[0].dtype), *tensors, *geometry, modulated)
