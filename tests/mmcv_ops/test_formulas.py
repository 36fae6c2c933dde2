"""Operators that mmcv compiles for CUDA alone, against a formula or another library's; and what those get wrong."""

import pytest
import torch
import torch.nn.functional as F
from mmcv import ops
from mmcv.ops.carafe import carafe, carafe_naive
from mmcv.ops.multi_scale_deform_attn import MultiScaleDeformableAttnFunction, multi_scale_deformable_attn_pytorch
from operator_cases import boxes, rois, wave
from torch import Tensor

from mmlisa.mmcv_ops import roi_pooling


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
    target = (
        torch.tensor([0, 4, 2, 1, 3, 3]) if weight is not None else torch.tensor([0, 4, 2, 5, 3, 5])
    )  # 5: background

    def expected(logits):
        one_hot = F.one_hot(target, 6)[:, :5].float()
        p = torch.where(one_hot > 0, logits.sigmoid(), 1 - logits.sigmoid())
        loss = -(0.25 * one_hot + 0.75 * (1 - one_hot)) * (1 - p) ** 2 * p.log()
        loss = loss.sum(1) * (1 if weight is None else weight[target])
        return loss.mean() if reduction == "mean" else loss.sum()

    logits = wave(6, 5, low=-4, high=4)
    _equal(lambda logits: ops.sigmoid_focal_loss(logits, target, 2.0, 0.25, weight, reduction), expected, logits)


@pytest.mark.parametrize("weight", [None, wave(5, low=0)])
def test_softmax_focal_loss(weight):
    target = torch.tensor([0, 4, 2, 1, 3, 3])

    def expected(logits):
        p = logits.softmax(1)[torch.arange(6), target]
        return (-0.25 * (1 - p) ** 2 * p.log() * (1 if weight is None else weight[target])).mean()

    logits = wave(6, 5, low=-4, high=4)
    _equal(lambda logits: ops.softmax_focal_loss(logits, target, 2.0, 0.25, weight, "mean"), expected, logits)


def test_focal_losses_of_extreme_logits_are_finite():
    logits = torch.tensor([[200.0, -200.0], [-200.0, 200.0]], requires_grad=True)
    for loss in (ops.sigmoid_focal_loss, ops.softmax_focal_loss):
        value = loss(logits, torch.tensor([0, 0]))
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


@pytest.mark.parametrize("kernel", [(3, 3), (1, 1), (3, 5)])
def test_masked_conv(kernel):
    padding = (kernel[0] // 2, kernel[1] // 2)
    image, weight, bias, mask = wave(1, 3, 6, 7), wave(4, 3, *kernel, seed=2), wave(4, seed=3), wave(1, 6, 7, seed=4)
    expected = F.conv2d(image, weight, bias, padding=padding) * (mask > 0)
    torch.testing.assert_close(ops.masked_conv2d(image, mask, weight, bias, padding), expected)
    assert not ops.masked_conv2d(image, -mask.abs(), weight, bias, padding).any()


@pytest.mark.parametrize("operator", [carafe, carafe_naive])
def test_carafe(operator):
    features, masks = wave(2, 4, 3, 5), wave(2, 2 * 9, 6, 10, seed=2)

    def expected(features, masks):
        padded = F.pad(features, (1, 1, 1, 1))
        rows = []
        for y in range(6):
            for x in range(10):
                window = padded[:, :, y // 2 : y // 2 + 3, x // 2 : x // 2 + 3].reshape(2, 2, 2, 9)
                rows.append((window * masks[:, :, y, x].view(2, 2, 1, 9)).sum(-1).view(2, 4))
        return torch.stack(rows, dim=2).view(2, 4, 6, 10)

    if operator is carafe:
        _equal(lambda *inputs: carafe(*inputs, 3, 2, 2), expected, features, masks)
    else:  # mmcv refuses its gradient on CPUs
        torch.testing.assert_close(carafe_naive(features, masks, 3, 2, 2), expected(features, masks))


@pytest.mark.parametrize("sampling_ratio", [0, 2])
def test_deformable_roi_pooling(sampling_ratio):
    features, regions = wave(2, 3, 13, 17), rois(4)
    still = torch.zeros(4, 2, 3, 4)
    align = ops.roi_align(features, regions, (3, 4), 0.25, sampling_ratio, "avg", True)
    for offset in (None, still):
        found = ops.deform_roi_pool(features, regions, offset, (3, 4), 0.25, sampling_ratio, 0.1)
        torch.testing.assert_close(found, align)
    # A bin moved by its own width and height is its neighbour: offsets are in units of gamma times the region.
    moved = torch.stack([torch.full((4, 3, 4), 10 / 4), torch.full((4, 3, 4), 10 / 3)], dim=1)
    found = ops.deform_roi_pool(features, regions, moved, (3, 4), 0.25, sampling_ratio, 0.1)
    torch.testing.assert_close(found[..., :-1, :-1], align[..., 1:, 1:])


def test_gradient_of_deformable_roi_pooling():
    features = wave(1, 2, 9, 9).double().requires_grad_()
    offset = wave(2, 2, 2, 3, seed=2).double().requires_grad_()
    regions = torch.tensor([[0, 8.3, 8.1, 25.2, 20.4], [0, 6.2, 10.3, 22.9, 27.7]]).double()
    call = ops.deform_roi_pool
    assert torch.autograd.gradcheck(
        lambda *inputs: call(inputs[0], regions, inputs[1], (2, 3), 0.25, 2, 0.1), (features, offset)
    )


def test_roi_pool():
    """As mmcv's kernel has it: regions are not rounded, bins go from the floor to the ceiling."""
    features = wave(2, 3, 13, 17).requires_grad_()
    regions = torch.tensor([[0, 3.0, 5, 40, 44], [1, -9, -9, 10, 12], [1, 60, 4, 90, 30], [0, 30, 30, 10, 10]])
    expected = torch.zeros(4, 3, 3, 4)
    for n, (image, x1, y1, x2, y2) in enumerate(regions.tolist()):
        x1, y1, width, height = x1 / 4, y1 / 4, (x2 + 1 - x1) / 4, (y2 + 1 - y1) / 4
        if width <= 0 or height <= 0:
            continue
        for row in range(3):
            for column in range(4):
                top, bottom = max(int(torch.tensor(y1 + row * height / 3).floor()), 0), y1 + (row + 1) * height / 3
                left, right = max(int(torch.tensor(x1 + column * width / 4).floor()), 0), x1 + (column + 1) * width / 4
                window = features[int(image), :, top : max(-int(-bottom // 1), 0), left : max(-int(-right // 1), 0)]
                if window.numel():
                    expected[n, :, row, column] = window.amax((1, 2))
    found = ops.roi_pool(features, regions, (3, 4), 0.25)
    torch.testing.assert_close(found, expected)
    assert found[0].all()
    assert not found[3].any()
    torch.testing.assert_close(_gradients(found, features), _gradients(expected, features))


def test_sync_bn_of_one_process():
    x, weight, bias = wave(3, 4, 5, 2), wave(4, seed=2), wave(4, seed=3)
    function = ops.sync_bn.SyncBatchNormFunction.apply
    statistics, plain = (torch.zeros(4), torch.ones(4)), (torch.zeros(4), torch.ones(4))

    def call(x, weight, bias):
        return function(x, *statistics, weight, bias, 0.3, 1e-5, None, 1, "default")

    def expected(x, weight, bias):
        return F.batch_norm(x, *plain, weight, bias, True, 0.3, 1e-5)

    _equal(call, expected, x, weight, bias)
    torch.testing.assert_close(statistics, plain)


def test_line_nms():
    lanes = torch.zeros(4, 5 + 72)
    lanes[:, 4] = 72  # from the bottom to the top
    lanes[:, 5:] = torch.tensor([[100.0], [110.0], [300.0], [140.0]])
    keep, count, parent = ops.line_nms(lanes, torch.tensor([0.5, 0.9, 0.7, 0.6]), overlap=35.0, top_k=10)
    assert keep[:count].tolist() == [1, 2]
    assert parent.tolist() == [1, 1, 2, 1]
    assert ops.line_nms(lanes, torch.tensor([0.5, 0.9, 0.7, 0.6]), overlap=20.0, top_k=2)[1] == 2


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_roi_align_in_any_memory_format(mode):
    """mmcv's compiled one reads channels-last memory as if it were not."""
    features = wave(2, 3, 13, 17)
    plain, last = features.clone().requires_grad_(), features.to(memory_format=torch.channels_last).requires_grad_()
    results = [ops.roi_align(x, rois(5), (3, 4), 0.25, 2, mode, True) for x in (plain, last)]
    torch.testing.assert_close(*results)
    torch.testing.assert_close(*(_gradients(y, x)[0] for y, x in zip(results, (plain, last), strict=True)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_half_precision_rounds_only_the_result(mode, dtype):
    features = wave(2, 3, 13, 17).to(dtype)
    regions = rois(5) + 0.123  # as fp16 or bf16 they would be others
    wide = ops.roi_align(features.float(), regions, (3, 4), 0.25, 2, mode, True)
    found = ops.roi_align(features.requires_grad_(), regions, (3, 4), 0.25, 2, mode, True)
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
        features, masks = wave(1, 4, 3, 5), wave(1, 9, 6, 10, seed=2)
        upsampled = carafe(features, masks, 3, 1, 2)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), wide, rtol=0.02, atol=0.02)
    torch.testing.assert_close(upsampled, carafe(features, masks, 3, 1, 2), rtol=0, atol=0)
    assert len(scores)
    found.float().sum().backward()
    assert layer.weight.grad.isfinite().all()


def test_deform_conv_with_frozen_input():
    """The gradient of the weight alone, which mmcv asks for in a call of its own."""
    image, offset = wave(2, 4, 7, 9), wave(2, 18, 7, 9, seed=3)
    weights = [wave(6, 4, 3, 3, seed=2).requires_grad_() for _ in range(2)]
    plain = ops.deform_conv2d(image, offset, weights[0], 1, 1)
    other = ops.deform_conv2d(image.clone().requires_grad_(), offset, weights[1], 1, 1)
    torch.testing.assert_close(_gradients(plain, weights[0]), _gradients(other, weights[1]))


def test_corners_of_a_map():
    index, weight = zip(
        *roi_pooling._corners(torch.tensor([-1.5, -0.5, 2.9]), torch.tensor([0.0, 1.25, 3.5]), 3, 4), strict=True
    )
    weights = torch.zeros(3, 12).index_put_(
        (torch.arange(3).repeat(4), torch.cat(index)), torch.cat(weight), accumulate=True
    )
    expected = torch.zeros(3, 12)  # nothing of the first, which is more than a pixel outside
    expected[1, 1:3] = torch.tensor([0.75, 0.25])
    expected[2, 11] = 1
    torch.testing.assert_close(weights, expected)
