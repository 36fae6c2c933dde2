"""Predictions in half precision: which parts compute in it, and what they return."""

import pytest
import torch
from mmengine.model import BaseModel
from torch import nn

import mmlisa
from mmlisa.errors import UserError
from mmlisa.inference.half import use_half
from mmlisa.inference.load import DEMO, DEMO_CONFIG


class Doubled(nn.Linear):
    """Returns what its layer returns, twice, and knows the dtype."""

    def forward(self, x):
        y = super().forward(x)
        self.computed = y.dtype
        return [y, {"again": y}]


class Detector(BaseModel):
    def __init__(self) -> None:
        super().__init__()
        self.backbone, self.bbox_head, self.neck = Doubled(3, 5), Doubled(5, 2), None

    def forward(self, x):
        return self.bbox_head(self.backbone(x)[1]["again"])[0]


@pytest.mark.parametrize(("dtype", "expected"), [(None, torch.bfloat16), ("float16", torch.float16)])
def test_the_backbone_computes_in_half_and_the_head_of_a_detector_in_fp32(dtype, expected):
    model, x = Detector(), torch.randn(4, 3)
    names, y, weight = list(model.state_dict()), model(x), model.backbone.weight
    use_half(nn.Sequential(model), "cpu", dtype)
    half = model(x)
    assert (model.backbone.computed, model.bbox_head.computed, half.dtype) == (expected, torch.float32, torch.float32)
    assert not torch.equal(half, y)
    torch.testing.assert_close(half, y, rtol=0.03, atol=0.03)
    assert list(model.state_dict()) == names
    assert model.backbone.weight is weight
    assert isinstance(model.backbone, Doubled)


def test_the_demo_in_bfloat16():
    """The detections of fp32, and boxes that bfloat16 has not rounded: beyond 128, its numbers are whole."""
    picture = DEMO / "000000000006.jpg"
    exact, half = mmlisa.load(DEMO / "model.pth", DEMO_CONFIG), mmlisa.load("demo", dtype="bfloat16")
    expected, found = exact.predict(picture), half.predict(picture)
    assert sorted(found.labels) == sorted(expected.labels)
    for label, box in zip(found.labels, found.boxes, strict=True):
        assert abs(box - expected.boxes[expected.labels == label][0]).max() < 2
    assert (found.boxes[found.boxes > 128] % 1 != 0).any()
    assert found.scores.tolist() != expected.scores.tolist()


def test_what_does_not_run_in_half_is_refused():
    with pytest.raises(UserError, match="dtype is 'half'"):
        use_half(Detector(), "cpu", "half")
    with pytest.raises(UserError, match="backbone"):
        use_half(nn.Linear(3, 5), "cpu")
    with pytest.raises(UserError, match="dtype"):
        mmlisa.load(DEMO / "model.onnx", dtype="bfloat16")
