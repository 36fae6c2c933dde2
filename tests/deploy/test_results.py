"""Results computed with exportable operations equal those of the libraries' own ``predict``."""

import numpy as np
import pytest
import torch
from mmdet.models.task_modules import DistancePointBBoxCoder, MlvlPointGenerator
from mmengine.registry import MODELS
from mmpretrain.models import MultiLabelLinearClsHead
from mmseg.structures import SegDataSample
from torch import nn

from helpers.whole_models import DETECTORS, SIZE, build, image, predict
from mmlisa.deploy import runtime
from mmlisa.deploy.export import describe
from mmlisa.deploy.results import (
    Prepare,
    Results,
    WithResults,
    dense_candidates,
    find_detector,
    follow_sizes,
    suppress,
)
from mmlisa.training.config import load_config

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("uint8", [True, False])
@pytest.mark.parametrize("name", DETECTORS)
def test_detections_equal_the_librarys(name, uint8):
    model = build(name)
    expected = predict(model, "mmdet").pred_instances
    pixels = image()
    prepare = Prepare(model, uint8)
    inputs = pixels.to(torch.uint8) if uint8 else (pixels - prepare.mean) / prepare.std
    with torch.no_grad():
        boxes, scores, labels, *masks = WithResults(prepare, Results(model))(inputs)
    assert len(expected) >= 20
    torch.testing.assert_close(scores, expected.scores)
    same = (boxes - expected.bboxes).abs().amax(dim=1) < 1e-3
    assert same.float().mean() >= (
        0.95 if name.startswith("picodet") else 1
    )  # PicoDet: a few equal scores change places
    assert torch.equal(labels[same], expected.labels[same])
    assert expected.bboxes.std() > 10  # against the tolerance
    assert bool(masks) == ("masks" in expected)


@pytest.mark.parametrize(
    ("name", "scope"),
    [
        ("semantic_fpn_hylisanet", "mmseg"),
        ("upernet_flatten_swin", "mmseg"),
        ("mask2former_flatten_cswin", "mmseg"),
        ("classifier_hylisanet", "mmpretrain"),
    ],
)
def test_logits_and_probabilities_equal_the_librarys(name, scope):
    model = build(name)
    expected = predict(model, scope)
    expected = expected.seg_logits.data if scope == "mmseg" else expected.pred_score
    with torch.no_grad():
        (found,) = WithResults(Prepare(model, uint8=True), Results(model))(image().to(torch.uint8))
    if scope == "mmseg":  # without the padding, which the runtime cuts off
        found = found[..., : SIZE[0], : SIZE[1]]
    torch.testing.assert_close(found[0], expected)
    assert expected.std() > 1e-3


@pytest.mark.parametrize(
    ("kind", "options", "size"),
    [
        ("mmdet.DetDataPreprocessor", dict(pad_size_divisor=32, pad_value=2), (160, 192)),
        ("mmseg.SegDataPreProcessor", dict(size_divisor=32), SIZE),  # in training alone
        ("mmseg.SegDataPreProcessor", dict(size_divisor=64, test_cfg=dict(size_divisor=32), pad_val=2), (160, 192)),
        ("mmseg.SegDataPreProcessor", dict(size=(64, 64), test_cfg=dict(size=(256, 200)), pad_val=2), (256, 200)),
    ],
)
def test_images_are_padded_as_the_data_preprocessor_pads_them(kind, options, size, tmp_path):
    colours = dict(mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375], bgr_to_rgb=True)
    preprocessor = MODELS.build(dict(type=kind, **colours, **options))
    expected = preprocessor(dict(inputs=[image()[0].flip(0)], data_samples=[SegDataSample()]))["inputs"]
    assert expected.shape[2:] == size
    model = build("semantic_fpn_hylisanet", light=True)
    model.data_preprocessor = preprocessor
    prepare = Prepare(model, uint8=True)
    if not any(prepare.least):
        torch.testing.assert_close(prepare(image())[0], expected)
    cfg = load_config("semantic_fpn_hylisanet_demo.py")
    metadata = describe(cfg, WithResults(Prepare(model), Results(model)), {})
    metadata |= {"mmlisa_steps": "[]"}
    shape = [1, 3, *size] if prepare.divisor > 1 else [1, 3, "h", "w"]
    prepared, inside = runtime.Model(tmp_path, metadata, shape, None).prepare(
        image()[0].permute(1, 2, 0).numpy().astype(np.uint8)
    )
    np.testing.assert_allclose(prepared, expected, atol=1e-5)
    assert inside == SIZE


def test_boxes_of_queries_lie_in_the_padded_image():
    model = build("dino_ivit")
    model.data_preprocessor.pad_size_divisor = 32
    prepare, results = Prepare(model), Results(model)
    padded, limits = prepare(image() / 64 - 2)
    assert padded.shape[2:] == (160, 192)
    with torch.no_grad():
        found, _, _ = results(padded, limits)
        whole, _, _ = results(padded, torch.tensor([192.0, 160.0, 192.0, 160.0]))
    torch.testing.assert_close(found, torch.minimum(whole, limits))
    assert (found < limits - 1).any(dim=1).any()


def test_layers_that_keep_the_size_of_the_example_are_replaced():
    from mmseg.models.utils import Upsample

    def layers() -> nn.Module:
        return nn.Sequential(Upsample(scale_factor=2, mode="bilinear", align_corners=False), nn.AdaptiveAvgPool2d(3))

    free = ({2: torch.export.Dim.DYNAMIC, 3: torch.export.Dim.DYNAMIC},)
    program = torch.export.export(follow_sizes(layers()), (torch.rand(1, 2, 10, 8),), dynamic_shapes=free, strict=False)
    for size in ((10, 8), (7, 5), (4, 12)):
        x = torch.rand(1, 2, *size)
        torch.testing.assert_close(program.module()(x), layers()(x))


def test_unsupported_heads_and_settings_are_named():
    class Other(nn.Module):
        bbox_head = nn.Linear(1, 1)

    with pytest.raises(ValueError, match="'Linear' cannot be exported with its results; --raw"):
        find_detector(Other())
    boxes = (torch.zeros(1, 4), torch.zeros(1), torch.zeros(1))
    with pytest.raises(ValueError, match="soft_nms"):
        suppress(boxes, dict(nms=dict(type="soft_nms", iou_threshold=0.5)), 0)


def test_a_segmentor_of_windows_is_refused():
    model = build("semantic_fpn_hylisanet")
    model.test_cfg["mode"] = "slide"
    with pytest.raises(ValueError, match=r"test_cfg\.mode='slide'"):
        Results(model)


def test_nothing_is_found_in_nothing():
    """Candidates below the threshold leave empty results and no error."""
    candidates = (torch.rand(5, 4), torch.full((5,), 0.01), torch.zeros(5, dtype=torch.long))
    boxes, scores, labels = suppress(candidates, dict(nms=dict(type="nms", iou_threshold=0.5), max_per_img=3), 0.5)
    assert boxes.shape == (0, 4)
    assert len(scores) == len(labels) == 0


def test_what_the_runtime_does_otherwise_is_refused():
    model = build("semantic_fpn_hylisanet")
    model.out_channels = 1
    with pytest.raises(ValueError, match=r"model\.decode_head\.out_channels=1: .* has no threshold"):
        Results(model)
    model = build("semantic_fpn_hylisanet")
    model.align_corners = True
    with pytest.raises(ValueError, match="align_corners=True"):
        Results(model)
    model = build("classifier_hylisanet")
    model.head = MultiLabelLinearClsHead(num_classes=3, in_channels=4)
    with pytest.raises(ValueError, match="MultiLabelLinearClsHead predicts several labels"):
        Results(model)


@pytest.mark.parametrize(
    ("name", "head"), [("mask_rcnn_hylisanet", "roi_head.bbox_head"), ("retinanet_flatten_swin", "bbox_head")]
)
def test_scores_of_another_activation_are_refused(name, head):
    """Seesaw loss has two outputs more, and its scores are products."""
    model = build(name)
    model.get_submodule(head).loss_cls = MODELS.build(dict(type="mmdet.SeesawLoss", num_classes=8))
    with pytest.raises(ValueError, match=r"scores of 'SeesawLoss' cannot be exported with the results; --raw"):
        Results(model)


@pytest.mark.parametrize(
    ("name", "place", "method", "message"),
    [
        ("mask_rcnn_hylisanet", "roi_head.bbox_head", "predict_by_feat", "'Other' cannot be exported with its results"),
        ("classifier_hylisanet", "head", "_get_predictions", "'Other' does not predict probabilities by a softmax"),
    ],
)
def test_heads_that_predict_in_another_way_are_refused(name, place, method, message):
    """As mmdet's SABLHead and mmpretrain's RegressionHead do."""
    model = build(name)
    head = model.get_submodule(place)
    head.__class__ = type("Other", (type(head),), {method: lambda self, *args: None})
    with pytest.raises(ValueError, match=message):
        Results(model)


def test_a_centreness_scales_the_scores_of_the_boxes():
    class Head:
        cls_out_channels, use_sigmoid_cls = 1, True
        bbox_coder, prior_generator = DistancePointBBoxCoder(), MlvlPointGenerator([8])

        def __call__(self, maps):
            return [torch.zeros(1, 1, 2, 2)], [torch.ones(1, 4, 2, 2)], [torch.full((1, 1, 2, 2), -2.0)]

    _, scores, _ = dense_candidates(Head(), None, torch.full((4,), 16.0), {})
    torch.testing.assert_close(scores.max(), 0.5 * torch.tensor(-2.0).sigmoid())
    # MMDetection's threshold is one of scores without it.
    _, kept, _ = dense_candidates(Head(), None, torch.full((4,), 16.0), {"score_thr": 0.4})
    assert torch.equal(kept, scores)
    _, none, _ = dense_candidates(Head(), None, torch.full((4,), 16.0), {"score_thr": 0.6})
    assert none.max() < 0
