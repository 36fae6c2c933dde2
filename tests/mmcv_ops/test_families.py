"""One small model of each family that reaches an operator: a loss with gradients, and a prediction.

The configs are the packages' own with a narrow ResNet. That the operator is reached is part of the test.
"""

import sys
from pathlib import Path

import mmdet
import pytest
import torch
from mmdet.testing import demo_mm_inputs
from mmdet.utils import register_all_modules
from mmengine.config import Config
from mmengine.logging import MessageHub
from mmengine.registry import MODELS, DefaultScope

from mmlisa.mmcv_ops import ext

DETECTORS = {
    "faster_rcnn/faster-rcnn_r50_fpn_soft-nms_1x_coco.py": {
        "nms",
        "roi_align_forward",
        "roi_align_backward",
        "softnms",
    },
    "dcn/faster-rcnn_r50-dconv-c3-c5_fpn_1x_coco.py": {"deform_conv_forward", "deform_conv_backward_parameters"},
    "dcnv2/mask-rcnn_r50-mdconv-c3-c5_fpn_1x_coco.py": {
        "modulated_deform_conv_forward",
        "modulated_deform_conv_backward",
    },
    "detectors/cascade-rcnn_r50-sac_1x_coco.py": {"deform_conv_forward", "deform_conv_backward_input"},
    "tood/tood_r50_fpn_1x_coco.py": {"deform_conv_forward", "deform_conv_backward_input"},
}

# Settings with which an untrained model reaches the operator on a small image.
SETTINGS = {
    "faster-rcnn_r50_fpn_soft-nms_1x_coco.py": {
        "model.test_cfg.rcnn.score_thr": 0.0,
        "model.test_cfg.rpn.max_per_img": 5,
    },
}


@pytest.fixture
def called(monkeypatch):
    """Record the names of the operators that are called."""
    names = set()
    module = sys.modules["mmcv._ext"]
    for name, function in vars(ext).items():
        if (
            callable(function)
            and not name.startswith("_")
            and getattr(function, "__module__", "").startswith("mmlisa.mmcv_ops")
        ):

            def record(*args, name=name, function=function, **kwargs):
                names.add(name)
                return function(*args, **kwargs)

            monkeypatch.setattr(module, name, record)
    return names


def _narrow(config: dict) -> dict:
    """Return the model with an untrained ResNet-50 of an eighth of the width."""
    backbone, neck = config["backbone"], config["neck"]
    backbone.update(base_channels=8, stem_channels=8, init_cfg=None)
    neck["in_channels"] = [channels // 8 for channels in neck["in_channels"]]
    return config


@pytest.mark.parametrize("name", DETECTORS)
def test_detector(name, called):
    torch.manual_seed(0)
    register_all_modules(init_default_scope=False)
    config = Config.fromfile(Path(mmdet.__file__).parent / ".mim" / "configs" / name)
    config.merge_from_dict(SETTINGS.get(name.split("/")[1], {}))
    with DefaultScope.overwrite_default_scope("mmdet"):
        model = MODELS.build(_narrow(config.model))
        MessageHub.get_current_instance().update_info("epoch", 0)  # TOOD's head asks for it
        data = demo_mm_inputs(2, [[3, 128, 96], [3, 128, 128]], num_classes=80, with_mask=True)
        data = model.data_preprocessor(data, training=True)
        losses = model(**data, mode="loss")
        sum(
            term.sum() for value in losses.values() for term in ([value] if torch.is_tensor(value) else value)
        ).backward()
        assert any(parameter.grad is not None for parameter in model.backbone.parameters())
        assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
        model.eval()
        with torch.no_grad():
            (result,) = model(data["inputs"][:1], data["data_samples"][:1], mode="predict")
    assert result.pred_instances.bboxes.shape[1] == 4
    assert called >= DETECTORS[name]
