"""Recording: layers whose graphs follow the size of the image, and what is recorded once."""

import pytest
import torch
from torch import nn

from mmlisa.export.graph import follow_sizes, merge_equal


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
