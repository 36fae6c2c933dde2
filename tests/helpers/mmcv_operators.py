"""Calls of mmcv.ops, made with mmcv's compiled operators and with ours (tests/mmcv_ops/test_expected.py).

A case is a function and its arguments, the tensors that get a gradient. In an environment with compiled operators
``python tests/helpers/mmcv_operators.py`` writes their results to ``expected.npz``.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from mmcv import _ext, ops
from torch import Tensor
from torch.nn.functional import conv2d

EXPECTED = Path(__file__).parents[1] / "mmcv_ops" / "expected.npz"


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


Case = tuple[Callable[..., object], tuple[Tensor, ...]]


def roi_align(sampling_ratio: int, aligned: bool, count: int = 5) -> Case:
    def call(features: Tensor) -> Tensor:
        return ops.roi_align(features, rois(5)[:count], (3, 4), 0.25, sampling_ratio, "avg", aligned)

    return call, (wave(2, 3, 13, 17),)


def deform_conv(
    modulated: bool,
    bias: bool = False,
    kernel: tuple[int, int] = (3, 3),
    groups: int = 1,
    deform_groups: int = 1,
    stride: int = 1,
    padding: int = 1,
    dilation: int = 1,
) -> Case:
    image, weight = wave(2, 4, 7, 9, seed=1), wave(6, 4 // groups, *kernel, seed=2)
    size = conv2d(image, weight, None, stride, padding, dilation, groups).shape[2:]
    points = deform_groups * kernel[0] * kernel[1]
    offset, mask = wave(2, 2 * points, *size, seed=3, low=-3, high=3), wave(2, points, *size, seed=4)
    geometry = (stride, padding, dilation, groups, deform_groups)
    if not modulated:
        return lambda *tensors: ops.deform_conv2d(*tensors, *geometry), (image, offset, weight)
    tensors, no_bias = (image, offset, mask, weight), () if bias else (None,)
    tensors += (wave(6, seed=5),) * bias
    return lambda *tensors: ops.modulated_deform_conv2d(*tensors, *no_bias, *geometry), tensors


def nms(count: int = 40, **settings: object) -> Case:
    return lambda: ops.nms(boxes(count), wave(count, seed=5, low=0), 0.4, **settings), ()


def batched_nms(**settings: object) -> Case:
    config = dict(type="nms", iou_threshold=0.4, **settings)
    return lambda: ops.batched_nms(boxes(40), wave(40, seed=5, low=0), torch.arange(40) % 3, config), ()


CASES: dict[str, Case] = {
    **{
        f"roi_align avg, sampling_ratio {sampling_ratio}, aligned {aligned}": roi_align(sampling_ratio, aligned)
        for sampling_ratio in (0, 2)
        for aligned in (True, False)
    },
    "roi_align avg, no regions": roi_align(2, True, count=0),
    **{
        f"{name}, {variant}": deform_conv(modulated, bias, **settings)
        for name, modulated, bias in (
            ("deform_conv", False, False),
            ("modulated_deform_conv", True, True),
            ("modulated_deform_conv without bias", True, False),
        )
        for variant, settings in {
            "plain": {},
            "groups": dict(groups=2, deform_groups=2),
            "strided": dict(stride=2, padding=(2, 0)),
            "dilated": dict(dilation=(1, 2), padding=2),
            "kernel 1 x 3": dict(kernel=(1, 3), padding=(0, 1)),
        }.items()
    },
    "nms": nms(),
    "nms, offset": nms(offset=1),
    "nms, score_threshold": nms(score_threshold=0.5),
    "nms, max_num": nms(max_num=5),
    "nms, no boxes": nms(count=0),
    "nms, one box": nms(count=1),
    "batched_nms": batched_nms(),
    "batched_nms, class_agnostic": batched_nms(class_agnostic=True),
    "batched_nms, split": batched_nms(split_thr=10),
}


def run(case: Case) -> dict[str, Tensor]:
    """Return every output of the function and the gradient of each of its arguments."""
    call, tensors = case
    tensors = [tensor.clone().requires_grad_() for tensor in tensors]
    returned = call(*tensors)
    outputs = [returned] if isinstance(returned, Tensor) else returned
    results = {f"output {i}": output.detach() for i, output in enumerate(outputs)}
    if tensors:
        gradients = torch.autograd.grad(outputs[0], tensors, wave(*outputs[0].shape, seed=9))
        results |= {f"gradient {i}": gradient for i, gradient in enumerate(gradients)}
    return results


if __name__ == "__main__":
    if not _ext.__file__.endswith(".so"):
        raise SystemExit(f"mmcv has no compiled operators here: mmcv._ext is {_ext.__file__}")
    results = {f"{name}: {key}": value.numpy() for name, case in CASES.items() for key, value in run(case).items()}
    np.savez_compressed(EXPECTED, **results)
    print(f"{len(CASES)} cases, {EXPECTED.stat().st_size / 1024:.0f} KiB")
