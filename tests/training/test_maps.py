"""Maps of backbone and neck against the strides of heads, and images against the multiples that a network needs."""

from types import SimpleNamespace

import pytest
import torch
from mmdet.models import DetDataPreprocessor
from mmengine.structures import BaseDataElement
from mmseg.models import SegDataPreProcessor
from torch import nn

from helpers.whole_models import build
from mmlisa.training.maps import check_sizes, check_strides


class Network(nn.Module):
    """Pooled maps of given strides, fine to coarse; ``needs`` refuses other images, as the patches of a ViT do."""

    def __init__(self, strides=(4, 8, 16), needs=1, preprocessor=None):
        super().__init__()
        self.backbone, self.neck = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)
        self.data_preprocessor = preprocessor or DetDataPreprocessor(mean=[0, 0, 0], std=[1, 1, 1])
        self.strides, self.needs, self.seen = strides, needs, []

    def extract_feat(self, image):
        self.seen.append(tuple(image.shape[2:]))
        assert not any(side % self.needs for side in image.shape[2:]), f"not divisible by {self.needs}"
        x = self.neck(self.backbone(image))
        return [
            nn.functional.adaptive_avg_pool2d(x, [int(-(-side // s)) for side in x.shape[2:]]) for s in self.strides
        ]


def with_head(network, strides, name="bbox_head", attribute="prior_generator"):
    head = nn.Module()
    setattr(head, attribute, SimpleNamespace(strides=[(stride, stride) for stride in strides]))
    setattr(network, name, head)
    return network


def with_extractor(network, strides):
    extractor = nn.Module()
    extractor.featmap_strides = strides
    network.roi_head = nn.Module()
    network.roi_head.bbox_roi_extractor = nn.ModuleList([extractor])
    return network


@pytest.mark.parametrize(
    ("maps", "taken"),
    [
        ((3.5, 7, 14, 28), (4, 8, 16, 32)),  # patches of 14 pixels
        ((16, 16, 16, 16), (4, 8, 16, 32)),
        ((4, 8, 16, 32, 64), (8, 16, 32)),
        ((8, 16, 32), (4, 8, 16)),
        ((8, 16, 32), (32, 16, 8)),
        ((8, 16), (8, 16, 32)),
        ((8, 16, 32, 64), (8, 16, 32)),
    ],
)
@pytest.mark.parametrize("attribute", ["prior_generator", "square_anchor_generator"])
def test_a_head_with_other_strides_than_the_maps_is_refused(maps, taken, attribute):
    model = with_head(Network(maps), taken, attribute=attribute)
    numbers = [", ".join(map(str, strides)) for strides in (taken, maps)]
    with pytest.raises(ValueError, match=rf"model\.bbox_head takes .*{numbers[0]}, but model\.neck .*{numbers[1]}\."):
        check_strides(model)


@pytest.mark.parametrize(
    ("taken", "fits"), [((4, 8), True), ((4, 8, 16), True), ((8, 16), False), ((4, 8, 16, 32), False)]
)
def test_an_extractor_takes_the_first_maps(taken, fits):
    model = with_extractor(with_head(Network(), (4, 8, 16), "rpn_head"), taken)
    if fits:
        assert check_strides(model) == ""
    else:
        with pytest.raises(ValueError, match=r"model\.roi_head\.bbox_roi_extractor\.0 takes"):
            check_strides(model)


@pytest.mark.parametrize("strides", [(32, 16, 8), (8, 16, 32, 64, 128), (4,), (16, 16, 16)])
def test_heads_that_fit_pass(strides):
    """YOLOv3 takes the coarsest map first; at stride 128, networks round in either way."""
    assert check_strides(with_head(Network(strides), strides)) == ""


def test_models_without_strides_are_not_run():
    network = Network()
    assert check_strides(network) == check_strides(nn.Identity()) == ""
    assert network.seen == []


def test_a_network_that_does_not_run_is_noted():
    note = check_strides(with_head(Network(needs=300), (4, 8, 16)))
    assert "not compared: AssertionError: not divisible by 300" in note


def test_the_model_is_left_as_it_was():
    model = with_head(Network(), (4, 8, 16))
    model.backbone.eval()  # frozen
    before = {name: value.clone() for name, value in model.state_dict().items()}
    check_strides(model)
    assert (model.training, model.backbone.training, model.neck.training) == (True, False, True)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


class Images(list):
    def __init__(self, *sizes, several=False):
        one = [dict(inputs=torch.zeros(3, *size, dtype=torch.uint8), data_samples=BaseDataElement()) for size in sizes]
        super().__init__([dict(inputs=[item["inputs"]]) for item in one] if several else one)


def segmentor(divisor=None, window=None, needs=16):
    test_cfg = dict(size_divisor=divisor) if divisor else None
    network = Network(needs=needs, preprocessor=SegDataPreProcessor(mean=[0, 0, 0], std=[1, 1, 1], test_cfg=test_cfg))
    network.test_cfg = dict(mode="slide", crop_size=window) if window else dict(mode="whole")
    return network


@pytest.mark.parametrize(
    ("model", "remedy"),
    [
        (segmentor(), r"model\.data_preprocessor\.test_cfg=dict\(size_divisor=16\)"),
        (segmentor(divisor=8), r"model\.data_preprocessor\.test_cfg=dict\(size_divisor=16\)"),
        (segmentor(window=(40, 40)), r"model\.test_cfg\.crop_size to multiples of 16"),
        (Network(needs=14), r"model\.data_preprocessor\.pad_size_divisor=14"),
        (Network(needs=224), "the test pipeline to images of a size that it takes, such as 224x224"),
    ],
)
def test_images_that_the_network_does_not_take_are_refused(model, remedy):
    with pytest.raises(ValueError, match=rf"Conv2d\) does not take .*, which val_dataloader .*: set {remedy}"):
        check_sizes(model, Images((112, 112), (108, 72)), "val")


@pytest.mark.parametrize(
    ("model", "images"),
    [
        (Network(), None),  # takes any size: nothing is read
        (segmentor(divisor=16), None),
        (segmentor(), Images((64, 96), (32, 32))),  # all are multiples
        (segmentor(window=(64, 64)), Images((70, 99))),
        (segmentor(), Images((70, 99), several=True)),  # test-time augmentation
        (nn.Identity(), None),
    ],
)
def test_images_that_the_network_takes_pass(model, images):
    assert check_sizes(model, images, "val") == ""


def test_a_network_that_takes_no_usual_size_is_noted():
    assert "val images are not checked" in check_sizes(segmentor(needs=500), None, "val")


@pytest.mark.parametrize("name", ["mask_rcnn_hylisanet", "cascade_mask_rcnn_flatten_swin", "picodet_castling_lcnet"])
def test_shipped_detectors_fit(name):
    assert check_strides(build(name)) == ""
