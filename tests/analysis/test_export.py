"""Exports give what the model gives."""

import pytest
import torch
from torch import nn

from mmlisa.analysis.export import Exportable, export, largest_difference
from mmlisa.models.backbones import LCNet, LiSANet

pytest.importorskip("onnxruntime")


class Model(nn.Module):
    """As much of a classifier as the export looks at."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = lambda maps: maps[-1].mean((2, 3))

    def extract_feat(self, image):
        return self.backbone(image)


def lisanet() -> nn.Module:
    torch.manual_seed(0)
    arch = dict(base="small", depths=(1, 1), channels=(8, 16), num_heads=(1, 2), strides=(4, 2), mlp_ratios=(2, 2))
    return LiSANet(dict(arch, mixers="CL"), image_size=64)


# The kernels' own grid, and one smaller along one axis and larger along the other.
@pytest.mark.parametrize("size", [(64, 64), (40, 72)])
def test_onnx_equals_pytorch(size, tmp_path):
    module = Exportable(Model(lisanet()))
    export(module, tmp_path / "model.onnx", size)
    assert largest_difference(module, tmp_path / "model.onnx", size) < 1e-4
    with pytest.raises(ValueError, match=r"takes images of .* only"):
        largest_difference(module, tmp_path / "model.onnx", (128, 128))


def test_torch_export_equals_pytorch(tmp_path):
    module = Exportable(Model(lisanet()), backbone_only=True)
    export(module, tmp_path / "model.pt2", (64, 96))
    assert largest_difference(module, tmp_path / "model.pt2", (64, 96)) < 1e-4


def test_a_difference_is_noticed(tmp_path):
    module = Exportable(Model(LCNet("x0.25")))
    export(module, tmp_path / "model.onnx", (64, 64))
    assert largest_difference(module, tmp_path / "model.onnx", (64, 64)) < 1e-4
    with torch.no_grad():
        [p for p in module.parameters() if p.ndim == 4][-1].mul_(1.1)
    assert largest_difference(module, tmp_path / "model.onnx", (64, 64)) > 1e-2


def test_other_suffixes_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"model\.pb"):
        export(nn.Identity(), tmp_path / "model.pb", (64, 64))
