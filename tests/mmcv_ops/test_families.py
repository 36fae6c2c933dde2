"""One small model of each family that reaches an operator: a loss with gradients, and a prediction.

The configs are the packages' own with a narrow ResNet. That the operator is reached is part of the test.
"""

import sys
from pathlib import Path

import mmdet
import mmseg
import pytest
import torch
from mmdet.testing import demo_mm_inputs
from mmdet.utils import register_all_modules
from mmengine.config import Config
from mmengine.logging import MessageHub
from mmengine.registry import MODELS, DefaultScope
from mmengine.structures import PixelData
from mmseg.structures import SegDataSample

from mmlisa.mmcv_ops import ext

DETECTORS = {
    "faster_rcnn/faster-rcnn_r50_fpn_soft-nms_1x_coco.py": {
        "nms",
        "roi_align_forward",
        "roi_align_backward",
        "softnms",
    },
    "pisa/faster-rcnn_r50_fpn_pisa_1x_coco.py": {"nms_match"},
    "dcn/faster-rcnn_r50_fpn_dpool_1x_coco.py": {"deform_roi_pool_forward", "deform_roi_pool_backward"},
    "dcn/faster-rcnn_r50-dconv-c3-c5_fpn_1x_coco.py": {"deform_conv_forward", "deform_conv_backward_parameters"},
    "dcnv2/faster-rcnn_r50_fpn_mdpool_1x_coco.py": {"deform_roi_pool_forward", "deform_roi_pool_backward"},
    "dcnv2/mask-rcnn_r50-mdconv-c3-c5_fpn_1x_coco.py": {
        "modulated_deform_conv_forward",
        "modulated_deform_conv_backward",
    },
    "carafe/mask-rcnn_r50_fpn-carafe_1x_coco.py": {"carafe_forward", "carafe_backward"},
    "guided_anchoring/ga-retinanet_r50_fpn_1x_coco.py": {"deform_conv_forward", "masked_im2col_forward"},
    "detectors/cascade-rcnn_r50-sac_1x_coco.py": {"deform_conv_forward", "deform_conv_backward_input"},
    "tood/tood_r50_fpn_1x_coco.py": {"deform_conv_forward", "deform_conv_backward_input"},
}

# What makes a model that has learnt nothing, on a small image, reach the operator.
SETTINGS = {
    "faster-rcnn_r50_fpn_soft-nms_1x_coco.py": {
        "model.test_cfg.rcnn.score_thr": 0.0,
        "model.test_cfg.rpn.max_per_img": 5,
    },
    "faster-rcnn_r50_fpn_pisa_1x_coco.py": {"model.train_cfg.rcnn.sampler.score_thr": 0.0},
}


@pytest.fixture
def called(monkeypatch):
    """The names of the operators that were called."""
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
    """The model with a ResNet-50 of an eighth of the width, and without weights from elsewhere."""
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
        with torch.no_grad():  # one image: masked convolution takes no more
            (result,) = model(data["inputs"][:1], data["data_samples"][:1], mode="predict")
    assert result.pred_instances.bboxes.shape[1] == 4
    assert called >= DETECTORS[name]


def test_psanet(called):
    config = Config.fromfile(Path(mmseg.__file__).parent / ".mim/configs/_base_/models/psanet_r50-d8.py").model
    config.backbone.update(base_channels=8, stem_channels=8, norm_cfg=dict(type="BN"))
    config.pretrained = None
    config.decode_head.update(in_channels=256, channels=16, mask_size=(9, 9), norm_cfg=dict(type="BN"))
    config.auxiliary_head.update(in_channels=128, channels=16, norm_cfg=dict(type="BN"))
    with DefaultScope.overwrite_default_scope("mmseg"):
        model = MODELS.build(config)
        sample = SegDataSample(metainfo=dict(img_shape=(64, 64), ori_shape=(64, 64), pad_shape=(64, 64)))
        sample.gt_sem_seg = PixelData(data=torch.randint(0, 19, (1, 64, 64)))
        image = torch.randn(2, 3, 64, 64)
        losses = model(image, [sample, sample], mode="loss")
        sum(value for name, value in losses.items() if "loss" in name).backward()
        model.eval()
        with torch.no_grad():
            assert len(model(image, [sample, sample], mode="predict")) == 2
    assert called == {"psamask_forward", "psamask_backward"}
