"""Modules for inference on a CPU: the numbers of the modules that they replace, and a caller's tensors untouched."""

import pytest
import torch
from torch import nn

from mmlisa.inference import cpu
from mmlisa.models.backbones import hvit3, ivit, lisanet, mila
from mmlisa.models.backbones.base import Stage
from mmlisa.models.layers import Block, InvertedMerging, SepConv
from mmlisa.models.layers.blocks import StarReLU


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(cpu.MIN_TOKENS, 5), (2, 3, 67, 5), (1, cpu.MIN_TOKENS - 1, 5)])
def test_many_tokens_are_pixels(shape, bias, monkeypatch):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7, bias=bias))
    names, tokens = list(model.state_dict()), torch.randn(shape)
    expected = model(tokens)
    assert cpu.optimize_for_cpu(model) is model
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
        assert len(calls) == (2 if tokens.shape[:-1].numel() >= cpu.MIN_TOKENS else 0)
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
    layer = cpu.optimize_for_cpu(layer)
    assert type(layer) is cpu.TwoPassStarReLU
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
    assert cpu.optimize_for_cpu(model) is model
    assert model["a"] is model["b"][0], "a module that is used twice stays one module"
    assert type(layer) is StarReLU
    assert type(model["a"]) is cpu.TwoPassStarReLU
    assert model["a"].scale is layer.scale
    assert list(model.state_dict()) == names
    with torch.no_grad():
        model["a"](torch.randn(2, 5))
    assert len(seen) == 1


class Attention(nn.Linear):
    """A mixer that is no branch: it looks at its right neighbour."""

    def forward(self, x, grid):
        return super().forward(x.roll(1, dims=1))


def build(kind, mixer, mlp_conv):
    mixer = SepConv(6, 7) if mixer == "conv" else Attention(6, 6)
    if kind == "scaled":
        block = ivit.Block(6, mixer, res_scale=True, drop_path=0.5)
        nn.init.uniform_(block.res_scale1.scale)
        nn.init.uniform_(block.res_scale2.scale)
        return block
    if kind == "mila":
        return mila.MILABlock(6, mixer, mlp_ratio=2, drop_path=0.5)
    if kind == "vit3":
        return hvit3.ViT3Block(6, mixer, hvit3.ShortcutConvMlp(6, 12), drop_path=0.5, eps=1e-5)
    block = lisanet.PositionedBlock if kind == "positioned" else Block
    return block(6, mixer, mlp_ratio=2, mlp_conv=mlp_conv, drop_path=0.5, grid_axes=2)


@pytest.fixture
def counted(monkeypatch):
    """The numbers of tokens of the calls of fc1 and pwconv1."""
    shapes = []
    forward = cpu.PointwiseLinear.forward
    monkeypatch.setattr(cpu.PointwiseLinear, "forward", lambda self, x: (shapes.append(x.shape), forward(self, x))[1])
    return shapes


@pytest.mark.parametrize("mixer", ["conv", "attention"])
@pytest.mark.parametrize(
    ("kind", "mlp_conv"),
    [("plain", None), ("plain", 3), ("positioned", 3), ("scaled", None), ("mila", None), ("vit3", None)],
)
def test_chunks_equal_the_plain_stage(kind, mlp_conv, mixer, counted, monkeypatch):
    torch.manual_seed(0)
    batch = 2
    stage, grid = Stage([build(kind, mixer, mlp_conv) for _ in range(2)]).double().eval(), (37, 10)
    x = torch.randn(batch, 370, 6, dtype=torch.double)
    kept, expected = x.clone(), stage(x, grid)[0].detach()
    stage = cpu.optimize_for_cpu(stage)
    monkeypatch.setattr(cpu, "CHUNK", 8 * stage.blocks[0].mlp.hidden * 10 * batch // torch.get_num_threads())
    with torch.no_grad():
        torch.testing.assert_close(stage(x, grid)[0], expected, rtol=1e-12, atol=1e-12)
    assert torch.equal(x, kept)
    hidden = [shape for shape in counted if shape[-1] == 6]
    assert any(shape[:-1].numel() < batch * 370 for shape in hidden), "nothing was chunked"
    # Per block: fc1 or pwconv1, for every token once; attention is one call for all tokens. MILA's has three projections.
    layers = (2 if mixer == "conv" else 1) + 3 * (kind == "mila")
    assert sum(shape[:-1].numel() for shape in hidden) == 2 * batch * 370 * layers


def test_no_chunks_where_they_would_change_something(counted, monkeypatch):
    """In training, where paths are dropped per image; with prefix tokens, which are not on the map; where a hook listens."""
    monkeypatch.setattr(cpu, "CHUNK", 1200)
    stage, grid = cpu.optimize_for_cpu(Stage([build("plain", "attention", 3)]).eval()), (37, 10)

    def calls(tokens=370):
        counted.clear()
        with torch.no_grad():
            stage(torch.randn(1, tokens, 6), grid)
        return sum(shape[-1] == 6 for shape in counted)

    assert calls() > 1
    assert calls(tokens=371) == 1
    stage.train()
    assert calls() == 1
    stage.eval()
    with stage.blocks[0].mlp.fc1.register_forward_hook(lambda module, inputs, output: None):
        assert calls() == 1
    assert calls() > 1


class Identity(nn.Module):
    def forward(self, x, grid):
        return x


def test_a_stage_writes_into_its_own_memory_alone(monkeypatch):
    """All sums after the first; not into the tokens of a caller, also behind a block that returns its input."""
    blocks = [build("plain", "attention", None) for _ in range(3)]
    stage, x, grid, sums = Stage([Identity(), *blocks]).eval(), torch.randn(1, 15, 6), (3, 5), []
    expected, kept = stage(x, grid)[0].detach(), x.clone()
    add = cpu._add
    monkeypatch.setattr(cpu, "_add", lambda *args, **options: sums.append(add(*args, **options)) or sums[-1])
    with torch.no_grad():
        torch.testing.assert_close(cpu.optimize_for_cpu(stage)(x, grid)[0], expected)
    assert torch.equal(x, kept)
    assert len(sums) == 6
    assert len({y.data_ptr() for y in sums}) == 1


@pytest.mark.parametrize("size", [(2, 5, 40, 30), (1, 5, 7, 9), (0, 5, 8, 8)])
def test_merging_in_chunks_of_channels(size, monkeypatch):
    """Of unequal chunks, and for odd sides."""
    monkeypatch.setattr(cpu, "CHUNK", 1)
    monkeypatch.setattr(cpu, "LEAST_CHANNELS", 11)
    merging, x = InvertedMerging(5, 7).double().eval(), torch.randn(size, dtype=torch.double)
    for tensor in merging.state_dict().values():
        if tensor.is_floating_point():
            nn.init.uniform_(tensor, 0.5, 2)
    expected, calls = merging(x)[0].detach(), []
    conv2d = nn.functional.conv2d
    monkeypatch.setattr(nn.functional, "conv2d", lambda *args, **options: calls.append(1) or conv2d(*args, **options))
    chunked = cpu.optimize_for_cpu(merging)
    torch.testing.assert_close(chunked(x)[0], expected)
    assert len(calls) == 3, "with gradients nothing changes"
    with torch.no_grad():
        torch.testing.assert_close(chunked(x)[0], expected)
    assert len(calls) == 12


def test_a_trace_has_no_chunks(monkeypatch):
    monkeypatch.setattr(cpu, "CHUNK", 100)
    stage, x = cpu.optimize_for_cpu(Stage([build("plain", "attention", 3)]).eval()), torch.randn(1, 370, 6)
    with torch.no_grad():
        program = torch.export.export(stage, (x, (37, 10)))
        assert str(program.graph).count("aten.conv2d") == 1
        torch.testing.assert_close(program.module()(x, (37, 10))[0], stage(x, (37, 10))[0])
