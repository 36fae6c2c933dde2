"""Files that an ``init_cfg`` names run no code, in any registered module; a second ``init_weights`` changes nothing."""

from importlib import import_module
from pathlib import Path

import pytest
import torch
from mmengine.model import BaseModule

from helpers.backbones import CASES
from mmlisa.checkpoints import CheckpointError
from mmlisa.registry import MODELS

CLASSIFIER = dict(backbone=dict(type="mmlisa.LCNet", arch="x0.25"), head=None)
PAN = dict(in_channels=[8, 16, 32], out_channels=8)
VIT = dict(type="mmlisa.DINOv2", arch=dict(base="small", depth=1, channels=16, num_heads=2, image_size=28))
OPTIONS = {case["type"]: case for case in CASES.values()} | {
    "CSPPAN": PAN,
    "LCPAN": PAN,
    "SimpleFeaturePyramid": dict(in_channels=8, out_channels=8),
    "TimmBackbone": dict(model_name="lcnet_035"),
    "MlpClsHead": dict(num_classes=3, in_channels=8, init_scale=0.5),
    "PicoHead": dict(num_classes=3, in_channels=8, strides=(8, 16)),
    "DistilledClassifier": dict(CLASSIFIER, teacher=dict(type="mmpretrain.ImageClassifier", **CLASSIFIER)),
    "SelfDistilledClassifier": CLASSIFIER,
    "VideoClassifier": CLASSIFIER,
    "Adaptation": dict(
        backbone=dict(VIT, attention=dict(type="CellAttention"), init_cfg=dict(type="Constant", layer="Linear", val=0)),
        teacher=VIT,
    ),
}
WITHOUT_INIT_CFG = {"TiledDetector", "ExportedModel"}


class Code:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return Path.touch, (self.path,)


def test_every_registered_module_is_here():
    for location in MODELS._locations:
        module = import_module(location)
        for name in getattr(module, "__all__", ()):
            getattr(module, name)
    modules = {name for name, each in MODELS.module_dict.items() if issubclass(each, BaseModule)}
    assert modules == OPTIONS.keys() | WITHOUT_INIT_CFG


@pytest.mark.parametrize("name", OPTIONS)
def test_no_code_runs(name, tmp_path):
    torch.save({"state_dict": {}, "extra": Code(tmp_path / "ran")}, tmp_path / "weights.pth")
    init_cfg = dict(type="Pretrained", checkpoint=str(tmp_path / "weights.pth"))
    module = MODELS.build(dict(OPTIONS[name], type=f"mmlisa.{name}", init_cfg=init_cfg))
    with pytest.raises(CheckpointError, match="could run code"):
        module.init_weights()
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["MlpClsHead", "PicoHead", "LCNet"])
def test_a_second_call_changes_nothing(name, tmp_path):
    init_cfg = dict(type="Pretrained", checkpoint=str(tmp_path / "weights.pth"))
    module = MODELS.build(dict(OPTIONS[name], type=f"mmlisa.{name}"))
    torch.save(module.state_dict(), init_cfg["checkpoint"])
    module.init_cfg = init_cfg
    module.init_weights()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 1
    before = {key: tensor.clone() for key, tensor in module.state_dict().items()}
    module.init_weights()
    assert all(torch.equal(tensor, before[key]) for key, tensor in module.state_dict().items())
