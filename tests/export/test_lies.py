"""Networks whose files would be wrong are refused, whatever they predict, and an earlier file stays."""

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS
from mmpretrain.models import LinearClsHead
from torch import nn

from mmlisa.export import writing
from mmlisa.export.whole import EndToEnd
from mmlisa.export.writing import EXAMPLE, write
from mmlisa.ops.context import is_exporting

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.skipif(torch.__version__ < "2.8", reason="exports need PyTorch 2.8")
SIZE = (64, 96)


class Backbone(nn.Module):
    """A layer that looks at pixels, and a lie about its result ``[B, 16, H / 8, W / 8]``."""

    def __init__(self, lie=lambda y, call: y):
        super().__init__()
        self.layer, self.lie, self.calls = nn.Conv2d(3, 16, 8, stride=8), lie, []

    def forward(self, x):
        self.calls.append(x.shape)
        return (self.lie(self.layer(x).tanh(), len(self.calls)),)


def corner(y, value):
    rows, columns = (torch.arange(side) for side in y.shape[2:])
    return torch.where(rows[:, None] + columns == 0, value, y)


LIES = {
    "outside of recording": lambda y, call: y if is_exporting() else y + 5,
    "in the first call": lambda y, call: y + 5 if call == 1 else y,
    "in recording only": lambda y, call: y + 5 if is_exporting() else y,
    "in one of the sizes": lambda y, call: y if is_exporting() or y.shape[2] != 225 // 8 else y + 5,
    "in fp32": lambda y, call: y if is_exporting() or y.dtype == torch.float64 else y + 5,
    "a NaN in a corner": lambda y, call: corner(y, torch.nan),
    "a NaN in a corner, outside of recording": lambda y, call: y if is_exporting() else corner(y, torch.nan),
    "beside a large value": lambda y, call: corner(y if is_exporting() else y + 0.1, 1e6),
    "in a corner, outside of recording": lambda y, call: y if is_exporting() else corner(y, 5.0),
}
NMS = dict(type="nms", iou_threshold=0.5)
TEST = dict(nms_pre=100, min_bbox_size=0, score_thr=0.05, nms=NMS, max_per_img=20)
DENSE = dict(
    in_channels=16,
    feat_channels=16,
    anchor_generator=dict(type="AnchorGenerator", ratios=[0.5, 1.0], scales=[4], strides=[8]),
    loss_bbox=dict(type="mmdet.L1Loss"),
    _scope_="mmdet",
)


def detector(backbone):
    head = MODELS.build(dict(DENSE, type="RetinaHead", num_classes=3, stacked_convs=1, test_cfg=Config(TEST)))
    return dict(bbox_head=head)


def two_stage(backbone):
    rpn = MODELS.build(dict(DENSE, type="RPNHead", test_cfg=Config(dict(TEST, max_per_img=30))))
    align = dict(type="RoIAlign", output_size=3, sampling_ratio=0)
    pool = dict(type="SingleRoIExtractor", out_channels=16, featmap_strides=[8], roi_layer=align)
    box = dict(type="Shared2FCBBoxHead", in_channels=16, fc_out_channels=16, roi_feat_size=3, num_classes=3)
    mask = dict(type="FCNMaskHead", num_convs=1, in_channels=16, conv_out_channels=16, num_classes=3, roi_feat_size=3)
    roi = dict(
        type="StandardRoIHead",
        bbox_roi_extractor=pool,
        bbox_head=box,
        mask_roi_extractor=pool,
        mask_head=mask,
        _scope_="mmdet",
    )
    return dict(rpn_head=rpn, roi_head=MODELS.build(dict(roi, test_cfg=Config(dict(TEST, mask_thr_binary=0.5)))))


def segmentor(backbone):
    return dict(
        encode_decode=lambda image, _: backbone(image)[0],
        decode_head=nn.Identity(),
        test_cfg=dict(mode="whole"),
        out_channels=16,
    )


def classifier(backbone):
    head = LinearClsHead(num_classes=4, in_channels=16)
    head.pre_logits = lambda maps: maps[-1].mean((2, 3))
    return dict(head=head)


def build(kind, lie=lambda y, call: y) -> EndToEnd:
    torch.manual_seed(0)
    model, backbone = nn.Module(), Backbone(lie)
    parts = dict(backbone=backbone, extract_feat=backbone, data_preprocessor=nn.Identity()) | kind(backbone)
    for name, part in parts.items():
        setattr(model, name, part)
    for name, parameter in model.named_parameters():
        if "head" in name:
            nn.init.normal_(parameter, std=0.2)
    return EndToEnd(model)


KINDS = [classifier, segmentor, detector, two_stage]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dynamic", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_an_honest_network_is_written(dynamic, kind, tmp_path):
    differences = write(build(kind), tmp_path / "model.onnx", SIZE, dynamic=dynamic)
    assert len(differences) >= (4 if dynamic else 1)
    assert 0 <= max(differences.values()) < 1e-4


# These need no recording, or the one that shows whether candidates are compared.
EVERY_COMMIT = ("outside of recording", "in the first call", "a NaN in a corner", "beside a large value")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "lie", [*EVERY_COMMIT, *(pytest.param(x, marks=pytest.mark.nightly) for x in LIES if x not in EVERY_COMMIT)]
)
def test_a_lie_is_refused(lie, kind, tmp_path):
    if kind is classifier and lie == "beside a large value":
        pytest.skip("the mean over the map is large")
    out = tmp_path / "model.onnx"
    out.write_text("earlier")
    with pytest.raises(ValueError, match="was not written"):
        write(build(kind, LIES[lie]), out, SIZE, dynamic="sizes" in lie)
    assert out.read_text() == "earlier"
    assert list(tmp_path.iterdir()) == [out]


SIZES = {
    "higher than wide": lambda y: y.shape[2] > y.shape[3],
    "twice as high as wide": lambda y: y.shape[2] >= 2 * y.shape[3],
    "wider than 1000 pixels": lambda y: y.shape[3] > 125,
    "below 64 pixels": lambda y: y.shape[2] < 8,
    "one width": lambda y: y.shape[3] == 703 // 8,
}


@pytest.mark.parametrize(
    "size", ["wider than 1000 pixels", *(pytest.param(x, marks=pytest.mark.nightly) for x in SIZES if "1000" not in x)]
)
def test_a_branch_on_the_size_is_refused(size, tmp_path):
    """Also where no usual size is compared: the recording has a condition that does not hold there."""
    lie = build(segmentor, lambda y, call: y + 5 if SIZES[size](y) else y)
    with pytest.raises(ValueError, match="was not written"):
        write(lie, tmp_path / "model.onnx", EXAMPLE, dynamic=True)


def test_a_size_that_cannot_be_compared_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "_MOST_SIZES", 0)
    lie = build(segmentor, lambda y, call: y + 5 if SIZES["wider than 1000 pixels"](y) else y)
    with pytest.warns(UserWarning, match=r"32x1008 \(recorded where \(W // 8\) <= 125\)"):
        write(lie, tmp_path / "model.onnx", EXAMPLE, dynamic=True)
