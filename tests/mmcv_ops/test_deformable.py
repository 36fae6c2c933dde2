"""Deformable convolutions against mmcv's compiled ones.

``deformable.npz`` holds values and gradients of mmcv's compiled CPU operators. In an environment that has them,
``python tests/mmcv_ops/test_deformable.py`` writes it.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from mmcv import _ext, ops
from torch import Tensor

from mmlisa.mmcv_ops import find_compiled

pytestmark = pytest.mark.skipif(bool(find_compiled()), reason="mmcv has compiled operators, which take precedence")
EXPECTED = Path(__file__).with_name("deformable.npz")
FORMS = {
    "deform_conv": (False, False),
    "modulated_deform_conv": (True, True),
    "modulated_deform_conv without bias": (True, False),
}
VARIANTS = {
    "plain": {},
    "groups": dict(groups=2, deform_groups=2),
    "strided": dict(stride=2, padding=(2, 0)),
    "dilated": dict(dilation=(1, 2), padding=2),
    "kernel 1 x 3": dict(kernel=(1, 3), padding=(0, 1)),
}


def wave(*shape: int, seed: int, low: float = -1.0, high: float = 1.0) -> Tensor:
    """Numbers without a visible order, by arithmetic: the same on every machine and with every version of torch."""
    index = torch.arange(torch.Size(shape).numel(), dtype=torch.float64) + 1000 * seed
    return (low + (high - low) * torch.frac(torch.sin(index * 12.9898).abs() * 43758.5453)).float().view(shape)


def run(
    modulated: bool,
    bias: bool,
    kernel: tuple[int, int] = (3, 3),
    groups: int = 1,
    deform_groups: int = 1,
    stride: int = 1,
    padding: int | tuple[int, int] = 1,
    dilation: int | tuple[int, int] = 1,
) -> dict[str, Tensor]:
    """Return the output, and the gradient of each of the tensors."""
    image, weight = wave(2, 4, 7, 9, seed=1), wave(6, 4 // groups, *kernel, seed=2)
    size = F.conv2d(image, weight, None, stride, padding, dilation, groups).shape[2:]
    points = deform_groups * kernel[0] * kernel[1]
    offset, mask = wave(2, 2 * points, *size, seed=3, low=-3, high=3), wave(2, points, *size, seed=4)
    geometry = (stride, padding, dilation, groups, deform_groups)
    tensors = [image, offset, *([mask] if modulated else []), weight, *([wave(6, seed=5)] if bias else [])]
    tensors = [tensor.requires_grad_() for tensor in tensors]
    if not modulated:
        output = ops.deform_conv2d(*tensors, *geometry)
    else:
        output = ops.modulated_deform_conv2d(*tensors, *([] if bias else [None]), *geometry)
    gradients = torch.autograd.grad(output, tensors, wave(*output.shape, seed=9))
    return {"output 0": output.detach()} | {f"gradient {i}": gradient for i, gradient in enumerate(gradients)}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("form", FORMS)
def test_as_compiled(form, variant):
    name = f"{form}, {variant}: "
    with np.load(EXPECTED) as stored:
        expected = {key.removeprefix(name): stored[key] for key in stored.files if key.startswith(name)}
    found = run(*FORMS[form], **VARIANTS[variant])
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        torch.testing.assert_close(found[key], torch.from_numpy(value), rtol=1e-5, atol=5e-5)


if __name__ == "__main__":
    if not _ext.__file__.endswith(".so"):
        raise SystemExit(f"mmcv has no compiled operators here: mmcv._ext is {_ext.__file__}")
    results = {}
    for form, flags in FORMS.items():
        for variant, options in VARIANTS.items():
            results |= {f"{form}, {variant}: {key}": value.numpy() for key, value in run(*flags, **options).items()}
    np.savez_compressed(EXPECTED, **results)
