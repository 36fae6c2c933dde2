"""Operators that mmcv compiles only for CUDA, against formulas; memory formats, dtypes and autocast of the others."""

import pytest
import torch
import torch.nn.functional as F
from mmcv import ops
from mmcv.ops.multi_scale_deform_attn import MultiScaleDeformableAttnFunction, multi_scale_deformable_attn_pytorch
from torch import Tensor

from helpers.mmcv_operators import boxes, rois, wave


def _gradients(output: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(output, inputs, wave(*output.shape, seed=9).to(output.dtype))


def _equal(call, expected, *inputs: Tensor) -> None:
    """Value and every gradient."""
    inputs = [tensor.requires_grad_() for tensor in inputs]
    found, wanted = call(*inputs), expected(*inputs)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(_gradients(found, *inputs), _gradients(wanted, *inputs))


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("weight", [None, wave(5, low=0)])
def test_sigmoid_focal_loss(reduction, weight):
    target = torch.tensor([0, 4, 2, 5, 3, 5])  # 5: background

    def expected(logits):
        one_hot = F.one_hot(target, 6)[:, :5].float()
        p = torch.where(one_hot > 0, logits.sigmoid(), 1 - logits.sigmoid())
        loss = -(0.25 * one_hot + 0.75 * (1 - one_hot)) * (1 - p) ** 2 * p.log()
        loss = loss.sum(1) * (1 if weight is None else torch.cat([weight, torch.ones(1)])[target])
        return loss.mean() if reduction == "mean" else loss.sum()

    logits = wave(6, 5, low=-4, high=4)
    _equal(lambda logits: ops.sigmoid_focal_loss(logits, target, 2.0, 0.25, weight, reduction), expected, logits)


@pytest.mark.parametrize("gamma", [0.5, 2.0])
def test_focal_loss_of_extreme_logits_is_finite(gamma):
    logits = torch.tensor([[200.0, -200.0], [-200.0, 200.0]], requires_grad=True)
    value = ops.sigmoid_focal_loss(logits, torch.tensor([0, 0]), gamma)
    assert value > 10
    assert value.isfinite()
    assert _gradients(value, logits)[0].isfinite().all()


def test_multi_scale_deformable_attention():
    shapes = torch.tensor([[5, 4], [3, 2]])
    inputs = wave(2, 26, 3, 4), wave(2, 7, 3, 2, 2, 2, seed=2, low=-0.2, high=1.2), wave(2, 7, 3, 2, 2, seed=3)
    _equal(
        lambda value, at, weight: MultiScaleDeformableAttnFunction.apply(
            value, shapes, torch.tensor([0, 20]), at, weight, 64
        ),
        lambda value, at, weight: multi_scale_deformable_attn_pytorch(value, shapes, at, weight),
        *inputs,
    )


def test_roi_align_in_any_memory_format():
    """mmcv's compiled operator reads channels-last memory as if it were contiguous."""
    features = wave(2, 3, 13, 17)
    plain, last = features.clone().requires_grad_(), features.to(memory_format=torch.channels_last).requires_grad_()
    results = [ops.roi_align(x, rois(5), (3, 4), 0.25, 2, "avg", True) for x in (plain, last)]
    torch.testing.assert_close(*results)
    torch.testing.assert_close(*(_gradients(y, x)[0] for y, x in zip(results, (plain, last), strict=True)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_rounds_only_the_result(dtype):
    features = wave(2, 3, 13, 17).to(dtype)
    regions = rois(5) + 0.123  # rounding the regions to half precision would move them
    wide = ops.roi_align(features.float(), regions, (3, 4), 0.25, 2, "avg", True)
    found = ops.roi_align(features.requires_grad_(), regions, (3, 4), 0.25, 2, "avg", True)
    torch.testing.assert_close(found, wide.to(dtype), rtol=0, atol=0)
    assert _gradients(found, features)[0].dtype == dtype


def test_under_autocast():
    """Offsets come from a convolution in bf16, weights are in fp32."""
    layer = ops.ModulatedDeformConv2dPack(4, 6, 3, padding=1)
    x = wave(2, 4, 7, 9)
    wide = layer(x)
    with torch.autocast("cpu", torch.bfloat16):
        found = layer(x)
        scores = ops.nms(boxes(9).bfloat16(), wave(9, low=0), 0.5)[0]
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), wide, rtol=0.02, atol=0.02)
    assert len(scores)
    found.float().sum().backward()
    assert layer.weight.grad.isfinite().all()


def test_deform_conv_with_frozen_input():
    """mmcv asks for the gradient of the weight in a separate call."""
    image, offset = wave(2, 4, 7, 9), wave(2, 18, 7, 9, seed=3)
    weights = [wave(6, 4, 3, 3, seed=2).requires_grad_() for _ in range(2)]
    plain = ops.deform_conv2d(image, offset, weights[0], 1, 1)
    other = ops.deform_conv2d(image.clone().requires_grad_(), offset, weights[1], 1, 1)
    torch.testing.assert_close(_gradients(plain, weights[0]), _gradients(other, weights[1]))
