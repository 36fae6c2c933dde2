"""Modules for faster predictions: the numbers of the modules that they replace; which parts compute in half precision."""

import pytest
import torch
from mmengine.model import BaseModel
from torch import nn

import mmlisa
from helpers.backbones import CASES
from helpers.networks import randomised
from mmlisa.errors import UserError
from mmlisa.inference import faster
from mmlisa.inference.load import DEMO, DEMO_CONFIG
from mmlisa.models.backbones.hvit3 import ShortcutConvMlp
from mmlisa.models.layers.blocks import Mlp, SepConv, StarReLU
from mmlisa.models.layers.tokens import InvertedMerging
from mmlisa.registry import MODELS


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(faster.MIN_TOKENS, 5), (2, 3, 67, 5), (1, faster.MIN_TOKENS - 1, 5)])
def test_many_tokens_are_pixels(shape, bias, monkeypatch):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7, bias=bias))
    names, tokens = list(model.state_dict()), torch.randn(shape)
    expected = model(tokens)
    assert faster.optimize_for_cpu(model) is model
    assert list(model.state_dict()) == names
    calls = []
    conv2d = nn.functional.conv2d
    monkeypatch.setattr(nn.functional, "conv2d", lambda *args: calls.append(args) or conv2d(*args))
    assert torch.equal(model(tokens), expected), "with gradients nothing changes"
    assert not calls
    with torch.no_grad():
        torch.testing.assert_close(model(tokens), expected)
        # Tokens that are not contiguous in memory.
        torch.testing.assert_close(model(tokens.repeat_interleave(2, dim=-2)[..., ::2, :]), expected)
        assert len(calls) == (2 if tokens.shape[:-1].numel() >= faster.MIN_TOKENS else 0)
        with torch.autocast("cpu", torch.bfloat16):
            calls.clear()
            torch.testing.assert_close(model(tokens).float(), expected, rtol=0.02, atol=0.02)
        assert not calls, "in bfloat16, linear layers are faster"


def test_star_relu_in_two_passes():
    layer = StarReLU().double()
    nn.init.constant_(layer.scale, 1.5)
    nn.init.constant_(layer.bias, -0.5)
    x = torch.randn(3, 5, dtype=torch.double)
    kept = x.clone()
    layer = faster.optimize_for_cpu(layer)
    assert type(layer) is faster.TwoPassStarReLU
    with torch.no_grad():
        torch.testing.assert_close(layer(x), 1.5 * x.clamp(min=0) ** 2 - 0.5)
    assert torch.equal(x, kept)
    layer(x).sum().backward()
    torch.testing.assert_close(layer.scale.grad, (x.clamp(min=0) ** 2).sum()[None])


def test_modules_are_replaced_and_never_changed():
    """Instances of other classes with the same parameters and hooks; the replaced module stays what it was."""
    layer, seen = StarReLU(), []
    layer.register_forward_hook(lambda *args: seen.append(args))
    model = nn.ModuleDict(dict(a=layer, b=nn.Sequential(layer)))
    names = list(model.state_dict())
    assert faster.optimize_for_cpu(model) is model
    assert model["a"] is model["b"][0], "a module that is used twice stays one module"
    assert type(layer) is StarReLU
    assert type(model["a"]) is faster.TwoPassStarReLU
    assert model["a"].scale is layer.scale
    assert list(model.state_dict()) == names
    with torch.no_grad():
        model["a"](torch.randn(2, 5))
    assert len(seen) == 1


def chunked(branch, monkeypatch, chunk=600):
    """The branch as it computes in chunks, and the numbers of tokens of the calls of its first linear layer."""
    branch, shapes = faster.optimize_for_cpu(branch.eval()), []
    monkeypatch.setattr(faster, "CHUNK", chunk // torch.get_num_threads())
    forward = faster.PointwiseLinear.forward
    monkeypatch.setattr(
        faster.PointwiseLinear, "forward", lambda self, x: (shapes.append(x.shape), forward(self, x))[1]
    )
    return branch, lambda: [shape[:-1].numel() for shape in shapes if shape[-1] == 6]


@pytest.mark.parametrize(
    ("branch", "rows"),
    [
        (lambda: Mlp(6, 12), None),
        (lambda: Mlp(6, 12, 3), [6, *[7] * 6, 3]),  # of 37, five at a time, and one beside them on either side
        (lambda: ShortcutConvMlp(6, 12), [6, *[7] * 6, 3]),
        (lambda: SepConv(6, 7), [8, *[11] * 5, 10, 5]),
    ],
)
def test_chunks_equal_the_plain_branch(branch, rows, monkeypatch):
    torch.manual_seed(0)
    branch, grid, x = branch().double().eval(), (37, 10), torch.randn(2, 370, 6, dtype=torch.double)
    kept, expected = x.clone(), branch(x, grid).detach()
    branch, calls = chunked(branch, monkeypatch, chunk=1200)
    with torch.no_grad():
        torch.testing.assert_close(branch(x, grid), expected, rtol=1e-12, atol=1e-12)
    assert torch.equal(x, kept)
    assert calls() == ([20 * count for count in rows] if rows else [93] * 7 + [89])


@pytest.mark.parametrize("name", ["lisanet-hybrid", "lisanet-bn", "ivit", "flatten-pvtv2"])
def test_blocks_in_chunks_equal_the_plain_network(name, monkeypatch):
    """Norms and sums: scaled in iViT, with positions in LiSANet, with a convolution in PVTv2's MLP."""
    model = randomised(MODELS.build(CASES[name])).double().eval()
    image = torch.randn(1, 3, 75, 96, dtype=torch.double)
    expected, kept, norms = [x.detach() for x in model(image)], image.clone(), []
    monkeypatch.setattr(faster, "CHUNK", 2000 // torch.get_num_threads())
    norm_tokens = faster.norm_tokens
    monkeypatch.setattr(faster, "norm_tokens", lambda *args: norms.append(1) or norm_tokens(*args))
    model = faster.optimize_for_cpu(model)
    with torch.no_grad():
        for found, x in zip(model(image), expected, strict=True):
            torch.testing.assert_close(found, x, rtol=1e-9, atol=1e-9)
    assert len(norms) > 2 * sum(isinstance(m, faster.LeanBlock | faster.LeanIViTBlock) for m in model.modules()) > 0
    assert torch.equal(image, kept)


def test_no_chunks_where_they_would_change_something(monkeypatch):
    """In training, where a batch norm would see parts; with prefix tokens, which are not on the map; where a hook listens."""
    branch, calls = chunked(Mlp(6, 12, 3), monkeypatch)

    def count(tokens=370):
        before = len(calls())
        with torch.no_grad():
            branch(torch.randn(1, tokens, 6), (37, 10))
        return len(calls()) - before

    assert count() > 1
    assert count(tokens=371) == 1
    branch.train()
    assert count() == 1
    branch.eval()
    with branch.fc1.register_forward_hook(lambda module, inputs, output: None):
        assert count() == 1
    assert count() > 1


def test_a_trace_has_no_chunks(monkeypatch):
    (branch, _), x = chunked(Mlp(6, 12, 3), monkeypatch), torch.randn(1, 370, 6)
    with torch.no_grad():
        program = torch.export.export(branch, (x, (37, 10)))
        assert str(program.graph).count("aten.conv2d") == 1
        torch.testing.assert_close(program.module()(x, (37, 10)), branch(x, (37, 10)))


@pytest.mark.parametrize("size", [(2, 5, 40, 30), (1, 5, 7, 9), (0, 5, 8, 8)])
def test_merging_in_chunks_of_channels(size, monkeypatch):
    """Of unequal chunks, and for odd sides."""
    monkeypatch.setattr(faster, "CHUNK", 1)
    monkeypatch.setattr(faster, "LEAST_CHANNELS", 11)
    merging, x = InvertedMerging(5, 7).double().eval(), torch.randn(size, dtype=torch.double)
    for tensor in merging.state_dict().values():
        if tensor.is_floating_point():
            nn.init.uniform_(tensor, 0.5, 2)
    expected, calls = merging(x)[0].detach(), []
    conv2d = nn.functional.conv2d
    monkeypatch.setattr(nn.functional, "conv2d", lambda *args, **options: calls.append(1) or conv2d(*args, **options))
    chunked = faster.optimize_for_cpu(merging)
    torch.testing.assert_close(chunked(x)[0], expected)
    assert len(calls) == 3, "with gradients nothing changes"
    with torch.no_grad():
        torch.testing.assert_close(chunked(x)[0], expected)
    assert len(calls) == 12


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
    faster.use_half(nn.Sequential(model), dtype)
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
        faster.use_half(Detector(), "half")
    with pytest.raises(UserError, match="backbone"):
        faster.use_half(nn.Linear(3, 5))
    with pytest.raises(UserError, match="dtype"):
        mmlisa.load(DEMO / "model.onnx", dtype="bfloat16")
