"""Results computed with exportable operations equal those of the libraries' own ``predict``."""

from pathlib import Path
from types import SimpleNamespace

import mmdet
import numpy as np
import pytest
import torch
from mmdet.structures import DetDataSample
from mmengine.config import Config
from mmengine.registry import MODELS
from mmpretrain.models import MultiLabelLinearClsHead
from mmseg.structures import SegDataSample
from torch import nn

from helpers.whole_models import DETECTORS, SIZE, build, image, predict
from mmlisa.deploy import runtime
from mmlisa.deploy.export import describe
from mmlisa.deploy.results import EndToEnd, Preprocess, clips_boxes, find_detector, follow_sizes, nms
from mmlisa.training.config import load_config


@pytest.mark.parametrize("name", DETECTORS)
def test_detections_equal_the_librarys(name):
    model = build(name)
    names = sorted(model.state_dict())
    expected = predict(model, "mmdet").pred_instances
    with torch.no_grad():
        boxes, scores, labels, *masks = EndToEnd(model, uint8=True)(image().to(torch.uint8))
    assert len(expected) >= 20
    torch.testing.assert_close(scores, expected.scores)
    torch.testing.assert_close(boxes, expected.bboxes, rtol=1e-5, atol=1e-3)
    assert torch.equal(labels, expected.labels)
    assert expected.bboxes.std() > 10  # against the tolerance
    assert bool(masks) == ("masks" in expected)
    assert sorted(model.state_dict()) == names, "a checkpoint fits a model that is prepared for export"


@pytest.mark.parametrize(
    ("kind", "options", "size"),
    [
        ("mmdet.DetDataPreprocessor", dict(pad_size_divisor=32, pad_value=2), (160, 192)),
        ("mmseg.SegDataPreProcessor", dict(size_divisor=32), SIZE),  # in training alone
        ("mmseg.SegDataPreProcessor", dict(size_divisor=64, test_cfg=dict(size_divisor=32), pad_val=2), (160, 192)),
        ("mmseg.SegDataPreProcessor", dict(size=(64, 64), test_cfg=dict(size=(256, 200)), pad_val=2), (256, 200)),
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
    if not any(prepare.least):
        torch.testing.assert_close(prepare(image())[0], expected)
    metadata = describe(load_config("semantic_fpn_hylisanet_demo.py"), EndToEnd(model), {}) | {"mmlisa_steps": "[]"}
    shape = [1, 3, *size] if prepare.divisor > 1 else [1, 3, "h", "w"]
    pixels = image()[0].permute(1, 2, 0).numpy().astype(np.uint8)
    prepared, inside = runtime.Model("model.onnx", metadata, shape, None).prepare(pixels)
    np.testing.assert_allclose(prepared, expected, atol=1e-5)
    assert inside == SIZE


def test_boxes_of_queries_lie_in_the_image():
    module = EndToEnd(build("dino_ivit"))
    padded, limits = module.preprocess(image() / 64 - 2)
    padded = nn.functional.pad(padded, (0, 2, 0, 10))
    with torch.no_grad():
        found, _, _ = module(padded, limits)
        whole, _, _ = module(padded, torch.tensor([192.0, 160.0, 192.0, 160.0]))
    torch.testing.assert_close(found, torch.minimum(whole, limits))
    assert (found < whole - 1).any()


def test_layers_that_keep_the_size_of_the_example_are_replaced():
    from mmcv.cnn.bricks import Conv2dAdaptivePadding
    from mmseg.models.utils import Upsample
    from mmseg.models.utils.embed import AdaptivePadding

    def layers() -> nn.Module:
        torch.manual_seed(0)
        conv = Conv2dAdaptivePadding(2, 2, 3, stride=2)
        double = Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        paddings = AdaptivePadding(4, 4), AdaptivePadding(8, 8, padding="same")
        return nn.Sequential(conv, double, *paddings, nn.AdaptiveAvgPool2d(3))

    free = ({2: torch.export.Dim.DYNAMIC, 3: torch.export.Dim.DYNAMIC},)
    program = torch.export.export(follow_sizes(layers()), (torch.rand(1, 2, 16, 8),), dynamic_shapes=free, strict=False)
    for size in ((16, 8), (7, 5), (3, 13)):
        x = torch.rand(1, 2, *size)
        torch.testing.assert_close(program.module()(x), layers()(x))


def test_nothing_is_found_in_nothing():
    """Candidates below the threshold leave empty results and no error."""
    candidates = (torch.rand(5, 4), torch.full((5,), 0.01), torch.zeros(5, dtype=torch.long))
    boxes, scores, labels = nms(candidates, dict(nms=dict(type="nms", iou_threshold=0.5), max_per_img=3), 0.5)
    assert boxes.shape == (0, 4)
    assert len(scores) == len(labels) == 0


ANCHORS = dict(type="AnchorGenerator", ratios=[1.0], octave_base_scale=8, scales_per_octave=1, strides=[8, 16])
SMALL = dict(num_classes=3, in_channels=16, feat_channels=16, stacked_convs=1, test_cfg=None)
TEST = dict(
    mask_thr_binary=0.5,
    nms_pre=150,
    min_bbox_size=0,
    score_thr=0.05,
    nms=dict(type="nms", iou_threshold=0.6),
    max_per_img=100,
)
NORM = dict(norm_cfg=dict(type="GN", num_groups=4, requires_grad=True))
POINTS = dict(type="MlvlPointGenerator", offset=0, strides=[8, 16])
REGRESS = dict(regress_ranges=((-1, 64), (64, 1e8)), strides=[8, 16])
YOLO = dict(type="YOLOAnchorGenerator", base_sizes=[[(60, 40), (30, 50)], [(20, 10), (9, 30)]], strides=[16, 8])


@pytest.mark.parametrize(
    "options",
    [
        dict(type="RetinaHead", anchor_generator=ANCHORS),
        dict(type="FCOSHead", **REGRESS, **NORM),
        dict(type="ATSSHead", anchor_generator=ANCHORS, **NORM),
        dict(type="GFLHead", anchor_generator=ANCHORS, **NORM),
        dict(type="TOODHead", anchor_generator=ANCHORS, norm_cfg=NORM["norm_cfg"] | dict(num_groups=2)),
        dict(type="VFNetHead", anchor_generator=ANCHORS | dict(center_offset=0.0), **REGRESS, **NORM),
        dict(type="PAAHead", anchor_generator=ANCHORS, **NORM),
        dict(type="PAAHead", anchor_generator=ANCHORS, score_voting=False, **NORM),
        dict(type="FoveaHead", strides=[8, 16], base_edge_list=[16, 32], scale_ranges=((1, 64), (32, 256))),
        dict(type="RepPointsHead", point_feat_channels=16, point_strides=[8, 16], **NORM),
        dict(type="RTMDetInsHead", anchor_generator=POINTS, bbox_coder=dict(type="DistancePointBBoxCoder"), **NORM),
        dict(type="YOLOXHead", strides=[8, 16]),
        dict(
            type="YOLOV3Head",
            anchor_generator=YOLO,
            in_channels=(16, 16),
            out_channels=(16, 16),
            featmap_strides=[16, 8],
        ),
    ],
    ids=lambda options: options["type"],
)
def test_dense_heads_predict_as_in_mmdetection(options):
    torch.manual_seed(0)
    maps = [torch.randn(1, 16, 12, 16), torch.randn(1, 16, 6, 8)]
    if options["type"].startswith("YOLOV3"):
        options, maps = dict(options, num_classes=3), maps[::-1]
    else:
        options = SMALL | options
    head = MODELS.build(dict(options, type=f"mmdet.{options['type']}", test_cfg=Config(dict(test=TEST)).test)).eval()
    for key, parameter in head.named_parameters():
        if parameter.ndim > 1 or key.endswith("bias"):
            nn.init.normal_(parameter, std=0.15 if parameter.ndim > 1 else 0.05)
    model = SimpleNamespace(bbox_head=head, extract_feat=lambda image: maps)
    sample = SimpleNamespace(metainfo=dict(img_shape=(90, 124), ori_shape=(112, 248), scale_factor=(0.5, 0.8)))
    with torch.no_grad():
        (expected,) = head.predict(maps, [sample])
        boxes, scores, labels, *masks = find_detector(model)(
            model, torch.zeros(1, 3, 96, 128), torch.tensor([124.0, 90, 124, 90])
        )
    assert len(expected) > 5
    assert len(set(expected.labels.tolist())) > 1
    expected = expected[expected.scores.argsort(descending=True)]  # PAA's voting returns one class after the other
    torch.testing.assert_close(scores, expected.scores)
    # PAA's vote of a box without an area is 0 / 0.
    torch.testing.assert_close(boxes, expected.bboxes, rtol=1e-5, atol=1e-3, equal_nan=True)
    assert boxes.isfinite().all(dim=1).sum() > 5
    assert torch.equal(labels, expected.labels)
    assert clips_boxes(head) != bool((expected.bboxes > torch.tensor([125, 91, 125, 91])).any())
    for logits in masks:
        (expected,) = head.predict(maps, [sample], rescale=True)
        found = [runtime._enlarge(each.numpy(), 8, (1 / 0.8, 1 / 0.5), (112, 248)) > 0 for each in logits]
        assert (np.stack(found) != expected.masks.numpy()).mean() < 1e-3
        assert 0.1 < expected.masks.float().mean() < 0.9


def test_learned_boxes_are_refined_as_in_mmdetection():
    torch.manual_seed(0)
    cfg = load_config(Path(mmdet.__file__).parent / ".mim/configs/sparse_rcnn/sparse-rcnn_r50_fpn_1x_coco.py").model
    two = dict(
        num_stages=2, stage_loss_weights=[1, 1], bbox_head=cfg.roi_head.bbox_head[:2], test_cfg=cfg.test_cfg.rcnn
    )
    roi, rpn = (MODELS.build(dict(part, _scope_="mmdet")) for part in (cfg.roi_head | two, cfg.rpn_head))
    rpn.init_weights()
    roi.bbox_head[1].fc_cls.weight.data.mul_(10)  # against equal scores
    maps = [torch.randn(1, 256, 24 // 2**level, 32 // 2**level) for level in range(4)]
    model = SimpleNamespace(rpn_head=rpn, roi_head=roi.eval(), extract_feat=lambda image: maps)
    sample = DetDataSample(metainfo=dict(img_shape=(90, 124)))
    with torch.no_grad():
        (expected,) = roi.predict(maps, rpn.predict(maps, [sample]), [sample])
        boxes, scores, labels = find_detector(model)(model, None, torch.tensor([124.0, 90, 124, 90]))
    expected = expected[expected.scores.argsort(descending=True)]
    torch.testing.assert_close(scores, expected.scores)
    torch.testing.assert_close(boxes, expected.bboxes, rtol=1e-5, atol=1e-3)
    assert torch.equal(labels, expected.labels)
    assert expected.bboxes.std() > 10


# --- models that are refused, because the results would differ -----------------------------------------------------------------


def test_other_heads_and_suppressions_are_named():
    class Other(nn.Module):
        bbox_head = nn.Linear(1, 1)

    with pytest.raises(ValueError, match="Linear cannot"):
        find_detector(Other())
    boxes = (torch.zeros(1, 4), torch.zeros(1), torch.zeros(1))
    with pytest.raises(ValueError, match="soft_nms"):
        nms(boxes, dict(nms=dict(type="soft_nms", iou_threshold=0.5)), 0)


@pytest.mark.parametrize(
    ("name", "place", "method"),
    [
        ("mask_rcnn_hylisanet", "roi_head.bbox_head", "predict_by_feat"),  # mmdet's SABLHead
        ("retinanet_flatten_swin", "bbox_head", "_predict_by_feat_single"),
        ("classifier_hylisanet", "head", "_get_predictions"),  # mmpretrain's RegressionHead
    ],
)
def test_heads_that_predict_in_another_way_are_named(name, place, method):
    model = build(name)
    head = model.get_submodule(place)
    head.__class__ = type("Other", (type(head),), {method: lambda self, *args: None})
    with pytest.raises(ValueError, match="Other"):
        EndToEnd(model)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (
            "mask_rcnn_hylisanet",
            lambda m: setattr(
                m.roi_head.bbox_head, "loss_cls", MODELS.build(dict(type="mmdet.SeesawLoss", num_classes=8))
            ),
            "SeesawLoss",
        ),
        (
            "classifier_hylisanet",
            lambda m: setattr(m, "head", MultiLabelLinearClsHead(num_classes=3, in_channels=4)),
            "MultiLabelLinearClsHead",
        ),
        ("semantic_fpn_hylisanet", lambda m: m.test_cfg.update(mode="slide"), "mode"),
        ("semantic_fpn_hylisanet", lambda m: setattr(m, "out_channels", 1), "out_channels"),
        # Mask2Former
        ("semantic_fpn_hylisanet", lambda m: setattr(m.decode_head, "pixel_decoder", None), "pixel decoder"),
    ],
)
def test_other_settings_are_named(name, change, message):
    model = build(name)
    change(model)
    with pytest.raises(ValueError, match=message):
        EndToEnd(model)
