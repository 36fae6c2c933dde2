"""Recording: layers whose graphs follow the size of the image, and what is recorded once."""

import pytest
import torch
import torchvision
from torch import nn

from mmlisa.export import graph
from mmlisa.export.graph import follow_sizes, merge_equal


@pytest.mark.parametrize(
    ("channels", "groups", "offset_groups", "kernel", "stride", "padding", "dilation", "has_mask"),
    [(8, 2, 4, 3, 1, 1, 1, True), (4, 4, 4, 1, 1, 0, 1, False), (6, 1, 1, 3, 2, 2, 2, True)],
)
def test_deformable_convolutions(channels, groups, offset_groups, kernel, stride, padding, dilation, has_mask):
    x, weight, bias = torch.rand(2, channels, 9, 11), torch.randn(4, channels // groups, kernel, kernel), torch.randn(4)
    rows, columns = ((n + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1 for n in (9, 11))
    offset = torch.randn(2, 2 * offset_groups * kernel**2, rows, columns) * 3
    mask = torch.rand(2, offset_groups * kernel**2, rows, columns)
    geometry = [stride] * 2 + [padding] * 2 + [dilation] * 2 + [groups, offset_groups, has_mask]
    expected = torchvision.ops.deform_conv2d(
        x, offset, weight, bias, stride, padding, dilation, mask if has_mask else None
    )
    found = graph.deform_conv2d(x, weight, offset, mask, bias, *geometry)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


class TwoWaves(nn.Module):
    def forward(self, x):
        a, b = (torch.arange(x.shape[0]).cos() for _ in range(2))
        return x * (a.mul_(2) if self.in_place else a) + x * b


@pytest.mark.parametrize(("in_place", "count"), [(False, 1), (True, 2)])
def test_equal_tensors_of_sizes_are_recorded_once(in_place, count):
    """Two tensors of which one is changed in place are not equal."""
    module = TwoWaves()
    module.in_place = in_place
    program = torch.export.export(module, (torch.randn(5),), dynamic_shapes=({0: torch.export.Dim.AUTO},), strict=False)
    merge_equal(program.graph)
    assert sum(node.target is torch.ops.aten.cos.default for node in program.graph.nodes) == count
    torch.testing.assert_close(program.module()(torch.arange(7.0)), module(torch.arange(7.0)))


def test_layers_that_keep_the_size_of_the_example_are_replaced():
    from mmseg.models.utils import Upsample

    def layers() -> nn.Module:
        torch.manual_seed(0)
        double = Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        return nn.Sequential(nn.Conv2d(2, 2, 3, padding=1), double, nn.AdaptiveAvgPool2d(3))

    free = ({2: torch.export.Dim.DYNAMIC, 3: torch.export.Dim.DYNAMIC},)
    model = layers()
    recorded = follow_sizes(model)
    assert repr(model) == repr(layers()), "the model itself is what the file is compared with"
    assert {id(x) for x in recorded.parameters()} == {id(x) for x in model.parameters()}
    program = torch.export.export(recorded, (torch.rand(1, 2, 16, 8),), dynamic_shapes=free, strict=False)
    for size in ((16, 8), (7, 5), (3, 13)):
        x = torch.rand(1, 2, *size)
        torch.testing.assert_close(program.module()(x), model(x))
