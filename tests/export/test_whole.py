"""Whole models with exportable results equal the libraries' own ``predict``; others are refused."""

import numpy as np
import pytest
import torch
from mmengine.registry import MODELS
from mmpretrain.models import MultiLabelLinearClsHead
from mmseg.structures import SegDataSample
from torch import nn

from helpers.whole_models import DETECTORS, SIZE, build, image, keep, predict
from mmlisa import runtime
from mmlisa.export.heads import find_detector, nms
from mmlisa.export.metadata import describe
from mmlisa.export.whole import EndToEnd, Exportable, Preprocess
from mmlisa.training.config import load_config


@pytest.mark.parametrize("name", DETECTORS)
def test_detections_equal_the_librarys(name):
    model = build(name)
    expected = predict(model, "mmdet").pred_instances
    with torch.no_grad():
        boxes, scores, labels, *masks = EndToEnd(model, uint8=True).predict(image().to(torch.uint8), keep)
    assert len(expected) >= 20
    torch.testing.assert_close(scores, expected.scores)
    torch.testing.assert_close(boxes, expected.bboxes, rtol=1e-5, atol=1e-3)
    assert torch.equal(labels, expected.labels)
    assert expected.bboxes.std() > 10  # against the tolerance
    assert bool(masks) == ("masks" in expected)


@pytest.mark.parametrize(
    ("kind", "options", "size"),
    [
        ("mmdet.DetDataPreprocessor", dict(pad_size_divisor=32, pad_value=2), (160, 192)),
        ("mmseg.SegDataPreProcessor", dict(size_divisor=32), SIZE),  # in training alone
        ("mmseg.SegDataPreProcessor", dict(size_divisor=64, test_cfg=dict(size_divisor=32), pad_val=2), (160, 192)),
    ],
)
def test_images_are_padded_as_the_data_preprocessor_pads_them(kind, options, size):
    colours = dict(mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375], bgr_to_rgb=True)
    preprocessor = MODELS.build(dict(type=kind, **colours, **options))
    expected = preprocessor(dict(inputs=[image()[0].flip(0)], data_samples=[SegDataSample()]))["inputs"]
    assert expected.shape[2:] == size
    model = build("semantic_fpn_hylisanet")
    model.data_preprocessor = preprocessor
    prepare = Preprocess(model, uint8=True)
    torch.testing.assert_close(prepare(image())[0], expected)
    metadata = describe(load_config("semantic_fpn_hylisanet_demo.py"), EndToEnd(model), {}) | {"mmlisa_steps": "[]"}
    shape = [1, 3, *size] if prepare.divisor > 1 else [1, 3, "h", "w"]
    pixels = image()[0].permute(1, 2, 0).numpy().astype(np.uint8)
    prepared, inside = runtime.Model("model.onnx", metadata, shape, None).prepare(pixels)
    np.testing.assert_allclose(prepared, expected, atol=1e-5)
    assert inside == SIZE


def test_other_heads_and_suppressions_are_named():
    class Other(nn.Module):
        bbox_head = nn.Linear(1, 1)

    with pytest.raises(ValueError, match="Linear cannot"):
        find_detector(Other())
    boxes = (torch.zeros(1, 4), torch.zeros(1), torch.zeros(1))
    with pytest.raises(ValueError, match="soft_nms"):
        nms(boxes, dict(nms=dict(type="soft_nms", iou_threshold=0.5)), 0)


def override(head, method):
    head.__class__ = type("Other", (type(head),), {method: lambda self, *args: None})


SEESAW = dict(type="mmdet.SeesawLoss", num_classes=8)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("mask_rcnn_hylisanet", lambda m: override(m.roi_head.bbox_head, "predict_by_feat"), "Other"),  # SABLHead
        ("retinanet_flatten_swin", lambda m: override(m.bbox_head, "_predict_by_feat_single"), "Other"),
        ("classifier_hylisanet", lambda m: override(m.head, "_get_predictions"), "Other"),  # RegressionHead
        ("classifier_hylisanet", lambda m: setattr(m, "head", MultiLabelLinearClsHead(3, 4)), "MultiLabelLinear"),
        ("mask_rcnn_hylisanet", lambda m: setattr(m.roi_head.bbox_head, "loss_cls", MODELS.build(SEESAW)), "Seesaw"),
        ("semantic_fpn_hylisanet", lambda m: m.test_cfg.update(mode="slide"), "mode"),
        ("semantic_fpn_hylisanet", lambda m: setattr(m, "out_channels", 1), "out_channels"),
        ("semantic_fpn_hylisanet", lambda m: setattr(m.data_preprocessor, "test_cfg", dict(size=(64, 64))), "size"),
        # Mask2Former
        ("semantic_fpn_hylisanet", lambda m: setattr(m.decode_head, "pixel_decoder", None), "pixel decoder"),
    ],
)
def test_what_predicts_in_another_way_is_named(name, change, message):
    model = build(name)
    change(model)
    with pytest.raises(ValueError, match=message):
        EndToEnd(model)


def test_a_backbone_whose_train_returns_nothing_is_exportable():
    """mmdet's Swin, the baseline of the benchmark of exported files."""
    swin = MODELS.build(dict(type="mmdet.SwinTransformer", embed_dims=16, depths=(1, 1, 1, 1), num_heads=(1, 2, 4, 8)))
    assert swin.train() is None
    assert len(Exportable(swin)(torch.zeros(1, 3, 64, 64))) == 4
    assert not swin.training
