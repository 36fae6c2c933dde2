"""Detectors with deformable convolutions: a loss with gradients, and a prediction, by our operators.

The configs are mmdet's with a narrow ResNet. The shipped configs reach the other operators.
"""

from pathlib import Path

import mmdet
import pytest
import torch
from mmdet.testing import demo_mm_inputs
from mmdet.utils import register_all_modules
from mmengine.config import Config
from mmengine.registry import MODELS, DefaultScope

DETECTORS = {
    "detectors/cascade-rcnn_r50-sac_1x_coco.py": "SAConv2d",
    "dcnv2/mask-rcnn_r50-mdconv-c3-c5_fpn_1x_coco.py": "ModulatedDeformConv2dPack",
}


@pytest.mark.parametrize("name", DETECTORS)
def test_detector(name):
    torch.manual_seed(0)
    register_all_modules(init_default_scope=False)
    config = Config.fromfile(Path(mmdet.__file__).parent / ".mim" / "configs" / name).model
    config.backbone.update(base_channels=8, stem_channels=8, init_cfg=None)
    config.neck.in_channels = [channels // 8 for channels in config.neck.in_channels]
    with DefaultScope.overwrite_default_scope("mmdet"):
        model = MODELS.build(config)
        data = demo_mm_inputs(2, [[3, 128, 96], [3, 128, 128]], num_classes=80, with_mask=True)
        data = model.data_preprocessor(data, training=True)
        model.parse_losses(model(**data, mode="loss"))[0].backward()
        layers = [layer for layer in model.modules() if type(layer).__name__ == DETECTORS[name]]
        assert all(layer.weight.grad.abs().max() > 0 for layer in layers)
        assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
        with torch.no_grad():
            (result,) = model.eval()(data["inputs"][:1], data["data_samples"][:1], mode="predict")
    assert len(layers) > 5
    assert result.pred_instances.bboxes.shape[1] == 4
