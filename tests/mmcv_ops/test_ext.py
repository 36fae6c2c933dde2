"""Operators against mmcv's compiled ones and against formulas; memory formats, dtypes and autocast.

``expected.npz`` holds values and gradients of mmcv's compiled CPU operators. In an environment that has them,
``python tests/mmcv_ops/test_ext.py`` writes it.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from mmcv import _ext, ops
from mmcv.ops.multi_scale_deform_attn import MultiScaleDeformableAttnFunction, multi_scale_deformable_attn_pytorch
from torch import Tensor

from mmlisa.errors import UserError
from mmlisa.mmcv_ops import ext, find_compiled

pytestmark = pytest.mark.skipif(bool(find_compiled()), reason="mmcv has compiled operators, which take precedence")
EXPECTED = Path(__file__).with_name("expected.npz")


def wave(*shape: int, seed: int = 1, low: float = -1.0, high: float = 1.0) -> Tensor:
    """Numbers without a visible order, by arithmetic: the same on every machine and with every version of torch."""
    index = torch.arange(torch.Size(shape).numel(), dtype=torch.float64) + 1000 * seed
    return (low + (high - low) * torch.frac(torch.sin(index * 12.9898).abs() * 43758.5453)).float().view(shape)


def boxes(count: int, seed: int = 1, extent: float = 60) -> Tensor:
    """``[count, 4]``, with many overlaps and some parts outside of 0 … extent."""
    corner = wave(count, 2, seed=seed, low=-0.1 * extent, high=0.8 * extent)
    return torch.cat([corner, corner + wave(count, 2, seed=seed + 1, low=0.1 * extent, high=0.5 * extent)], dim=1)


def rois(count: int, seed: int = 1) -> Tensor:
    """``[count, 5]`` in two images; the last has no area."""
    result = torch.cat([torch.arange(count)[:, None] % 2, boxes(count, seed)], dim=1)
    result[-1:, 3:] = result[-1:, 1:3]
    return result


def nms(_: Tensor, count: int = 40, **settings: object) -> tuple[Tensor, Tensor]:
    return ops.nms(boxes(count), wave(count, seed=5, low=0), 0.4, **settings)


def batched_nms(_: Tensor, **settings: object) -> tuple[Tensor, Tensor]:
    config = dict(type="nms", iou_threshold=0.4, **settings)
    return ops.batched_nms(boxes(40), wave(40, seed=5, low=0), torch.arange(40) % 3, config)


# Functions of a feature map [2, 3, 13, 17], which some do not need.
CASES: dict[str, Callable[[Tensor], Any]] = {
    f"roi_align avg, sampling_ratio {ratio}, aligned {aligned}": lambda x, ratio=ratio, aligned=aligned: ops.roi_align(
        x, rois(5), (3, 4), 0.25, ratio, "avg", aligned
    )
    for ratio in (0, 2)
    for aligned in (True, False)
}
CASES |= {
    "roi_align avg, no regions": lambda x: ops.roi_align(x, rois(5)[:0], (3, 4), 0.25, 2, "avg", True),
    "nms": nms,
    "nms, offset": partial(nms, offset=1),
    "nms, score_threshold": partial(nms, score_threshold=0.5),
    "nms, max_num": partial(nms, max_num=5),
    "nms, no boxes": partial(nms, count=0),
    "nms, one box": partial(nms, count=1),
    "batched_nms": batched_nms,
    "batched_nms, class_agnostic": partial(batched_nms, class_agnostic=True),
    "batched_nms, split": partial(batched_nms, split_thr=10),
}


def run(name: str) -> dict[str, Tensor]:
    """Return every output of a case and the gradient of the feature map."""
    features = wave(2, 3, 13, 17).requires_grad_()
    returned = CASES[name](features)
    outputs = [returned] if isinstance(returned, Tensor) else returned
    results = {f"output {i}": output.detach() for i, output in enumerate(outputs)}
    return results | ({"gradient 0": _gradients(outputs[0], features)[0]} if outputs[0].requires_grad else {})


@pytest.mark.parametrize("name", CASES)
def test_as_compiled(name):
    with np.load(EXPECTED) as stored:
        expected = {key.removeprefix(f"{name}: "): stored[key] for key in stored.files if key.startswith(f"{name}: ")}
    found = run(name)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        torch.testing.assert_close(
            found[key], torch.from_numpy(value), rtol=1e-5, atol=2e-5, msg=lambda m, key=key: f"{key}: {m}"
        )


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
    with torch.autocast("cpu", torch.bfloat16):
        assert len(ops.nms(boxes(9).bfloat16(), wave(9, low=0), 0.5)[0])


def test_what_is_missing_is_named():
    with pytest.raises(UserError, match="'box_iou_rotated'"):
        ext.box_iou_rotated()
    with pytest.raises(UserError, match="pool_mode='max'"):
        ops.roi_align(torch.rand(1, 2, 8, 8), rois(2), 2, 1.0, 2, "max")


if __name__ == "__main__":
    if not _ext.__file__.endswith(".so"):
        raise SystemExit(f"mmcv has no compiled operators here: mmcv._ext is {_ext.__file__}")
    results = {f"{name}: {key}": value.numpy() for name in CASES for key, value in run(name).items()}
    np.savez_compressed(EXPECTED, **results)
    print(f"{len(CASES)} cases, {EXPECTED.stat().st_size / 1024:.0f} KiB")
