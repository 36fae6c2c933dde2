"""What PyTorch's tools do with every backbone: other weights of the layers, precisions, devices and several processes."""

import copy

import pytest
import torch
from mmengine.model import revert_sync_batchnorm
from torch import nn
from torch.nn.utils import parametrizations, prune, weight_norm

from helpers.backbones import CASES
from mmlisa.models import backbones
from mmlisa.registry import MODELS

pytestmark = pytest.mark.slow

LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


def build(case: str | dict, **options) -> nn.Module:
    torch.manual_seed(0)
    backbone = MODELS.build({**(CASES[case] if isinstance(case, str) else case), **options})
    for p in backbone.parameters():  # no branch starts at zero
        p.data.add_(0.02 * torch.randn_like(p))
    return backbone


def layers(model: nn.Module) -> dict[str, nn.Module]:
    return {name: module for name, module in model.named_modules() if isinstance(module, LAYERS)}


def half_pruned(layer):
    prune.l1_unstructured(layer, "weight", 0.5)


def pruned_weight(layer):
    return layer.weight_orig * layer.weight_mask


def normed_weight(layer):
    return torch._weight_norm(layer.weight_v, layer.weight_g, 0)


# A tool, and the weight that it gives to a layer, computed from what is stored.
TOOLS = {
    "pruning": (half_pruned, pruned_weight),
    "weight-norm-hook": (weight_norm, normed_weight),
    "weight-norm": (parametrizations.weight_norm, lambda layer: layer.weight),
    "spectral-norm": (parametrizations.spectral_norm, lambda layer: layer.weight),
}


def assert_uses(tool_weight, model: nn.Module, plain: nn.Module, image: torch.Tensor) -> None:
    """The model computes what a network with these weights in ordinary layers computes."""
    state = dict(plain.state_dict())
    found = model.state_dict()
    state |= {key: found[key] for key in state if key in found}
    for name, layer in layers(model).items():
        state[f"{name}.weight"] = tool_weight(layer)
        if layer.bias is not None:
            state[f"{name}.bias"] = layer.bias
    plain.load_state_dict({key: value.detach() for key, value in state.items()})
    with torch.no_grad():
        torch.testing.assert_close(model.eval()(image), plain.eval()(image), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("name", CASES)
def test_layers_have_the_weights_that_a_tool_gives_them(name, tool):
    """Applied, loaded into another network, and trained for two steps."""
    apply, weight = TOOLS[tool]
    model, plain, image = build(name), build(name), torch.randn(2, 3, 64, 72)
    model.eval(), plain.eval()
    for layer in layers(model).values():
        apply(layer)
    assert_uses(weight, model, plain, image)

    state = {key: value * 0.9 if value.is_floating_point() else value for key, value in model.state_dict().items()}
    with torch.no_grad():
        before = model(image)
        model.load_state_dict(state)
        assert not torch.allclose(model(image)[-1], before[-1])
    assert_uses(weight, model, plain, image)

    optimizer = torch.optim.SGD(model.train().parameters(), lr=1e-4)
    for _ in range(2):
        optimizer.zero_grad()
        sum(m.square().mean() for m in model(image)).backward()
        optimizer.step()
    assert_uses(weight, model, plain, image)


class LowRank(nn.Module):
    """A linear layer with an added product, and without a weight, as LoRA libraries have it."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.inside = layer.requires_grad_(False)
        self.down = nn.Linear(layer.in_features, 2, bias=False)
        self.up = nn.Linear(2, layer.out_features, bias=False)

    def forward(self, x):
        return self.inside(x) + self.up(self.down(x))


@pytest.mark.parametrize("name", CASES)
def test_linear_layers_may_be_wrapped(name):
    """The wrapped network equals one with the sum of both weights, and both of its matrices learn."""
    model, plain, image = build(name), build(name).eval(), torch.randn(2, 3, 64, 72)
    wrapped = {key: LowRank(layer) for key, layer in layers(model).items() if isinstance(layer, nn.Linear)}
    for key, layer in wrapped.items():
        model.set_submodule(key, layer)
    with torch.no_grad():
        expected = plain(image)
        for key, layer in wrapped.items():
            plain.get_submodule(key).weight += layer.up.weight @ layer.down.weight
        torch.testing.assert_close(model.eval()(image), plain(image), rtol=1e-4, atol=1e-4)
        assert not wrapped or not torch.allclose(plain(image)[-1], expected[-1])
    optimizer = torch.optim.SGD(model.train().parameters(), lr=1e-3)
    for _ in range(2):
        sum(m.square().mean() for m in model(image)).backward()
        optimizer.step()
    assert all(p.grad is not None for layer in wrapped.values() for p in (layer.up.weight, layer.down.weight))


@pytest.mark.parametrize("name", CASES)
def test_adapters_of_peft(name):
    """LoRA on every linear layer: peft's own sum of both weights, another network's adapters, and two steps of training."""
    peft = pytest.importorskip("peft")
    linear = [key for key, layer in layers(build(name)).items() if isinstance(layer, nn.Linear)]
    if not linear:
        pytest.skip("no linear layers")

    def adapted() -> nn.Module:
        cfg = peft.LoraConfig(r=2, target_modules=linear, init_lora_weights=False)
        return peft.get_peft_model(build(name), cfg).eval()

    plain, model, image = build(name).eval(), adapted(), torch.randn(2, 3, 64, 72)
    other = adapted()
    for p in other.parameters():
        p.data.mul_(0.9)
    with torch.no_grad():
        assert not torch.allclose(model(image)[-1], plain(image)[-1], rtol=1e-3, atol=1e-3)
        assert not torch.allclose(model(image)[-1], other(image)[-1], rtol=1e-3, atol=1e-3)
        model.load_state_dict(other.state_dict())
        torch.testing.assert_close(model(image), other(image))
    before = {key: p.detach().clone() for key, p in model.named_parameters()}
    optimizer = torch.optim.SGD([p for p in model.train().parameters() if p.requires_grad], lr=1e-2)
    for _ in range(2):
        optimizer.zero_grad()
        sum((m * torch.randn_like(m)).mean() for m in model(image)).backward()
        optimizer.step()
    changed = {key for key, p in model.named_parameters() if not torch.equal(p, before[key])}
    assert changed == {key for key in before if "lora_" in key}
    with torch.no_grad():
        expected = model.eval()(image)
        torch.testing.assert_close(model.merge_and_unload()(image), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", CASES)
def test_every_layer_is_called(name):
    """In training and in evaluation, so that hooks see it."""
    model, image = build(name), torch.randn(2, 3, 64, 72)
    called = set()
    for key, module in layers(model).items():
        module.register_forward_hook(lambda *_, key=key: called.add(key))
    for mode in (True, False):
        called.clear()
        model.train(mode)(image)
        assert called == set(layers(model))


def scaled(model: nn.Module) -> nn.Module:
    """A copy with other weights."""
    model = copy.deepcopy(model)
    for p in model.parameters():
        p.data.mul_(0.9)
    return model


def assert_quantized(quantized: nn.Module, model: nn.Module, other: nn.Module, tolerance: float, is_changed: bool):
    """``quantized`` is near ``model``, equals ``other`` with its weights, and what is left in fp32 takes two steps."""
    image = torch.randn(2, 3, 64, 72)
    with torch.no_grad():
        for found, expected in zip(quantized(image), model(image), strict=True):
            error = (found - expected).norm() / expected.norm()
            assert error < tolerance
        assert is_changed == (error > 0)
        expected = other(image)
        assert not torch.equal(quantized(image)[-1], expected[-1])
        quantized.load_state_dict(other.state_dict())
        assert all(map(torch.equal, quantized(image), expected))
    optimizer = torch.optim.SGD([p for p in quantized.train().parameters() if p.requires_grad], lr=1e-3)
    for _ in range(2):
        optimizer.zero_grad()
        sum(m.square().mean() for m in quantized(image)).backward()
        optimizer.step()
    with torch.no_grad():
        found = quantized.eval()(image)
    assert not torch.equal(found[-1], expected[-1])
    assert all(m.isfinite().all() for m in found)


@pytest.mark.parametrize("name", CASES)
def test_linear_layers_in_eight_bits(name):
    """PyTorch's dynamic quantisation leaves layers whose ``weight`` is a method."""
    model = build(name).eval()
    quantized = torch.ao.quantization.quantize_dynamic(copy.deepcopy(model), {nn.Linear}, dtype=torch.qint8)
    other = torch.ao.quantization.quantize_dynamic(scaled(model), {nn.Linear}, dtype=torch.qint8)
    assert_quantized(quantized, model, other, 0.2, any(type(layer) is nn.Linear for layer in layers(model).values()))


@pytest.mark.parametrize("name", CASES)
def test_weights_of_eight_bits(name):
    quantization = pytest.importorskip("torchao.quantization")
    model = build(name).eval()
    quantized, other = copy.deepcopy(model), scaled(model)
    for network in (quantized, other):
        quantization.quantize_(network, quantization.Int8WeightOnlyConfig())
    linear = [layer for layer in layers(quantized).values() if isinstance(layer, nn.Linear)]
    assert all(type(layer.weight) is not nn.Parameter for layer in linear)
    assert_quantized(quantized, model, other, 0.1, bool(linear))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", CASES)
def test_half_precision_throughout(name, dtype):
    model, image = build(name).eval(), torch.randn(1, 3, 64, 72)
    half = copy.deepcopy(model).to(dtype)
    with torch.no_grad():
        expected = model(image)
        found = [half(image.to(dtype))]
        with torch.autocast("cpu", dtype=dtype):  # an image in fp32 meets weights in half precision, too
            found += [half(image.to(dtype)), half(image)]
    for maps in found:
        for a, b in zip(maps, expected, strict=True):
            assert a.dtype == dtype
            assert (a.float() - b).norm() < 2e-2 * b.norm()


def smallest_arch(kind: str) -> str:
    def size(arch: str) -> int:
        with torch.device("meta"):
            return sum(p.numel() for p in MODELS.get(kind)(arch).parameters())

    return min(MODELS.get(kind).arch_settings, key=size)


MORE_ARCHS = [("LiSANet", "hybrid-small"), ("FLattenSwin", "pola-tiny"), ("FLattenPVT", "pola-tiny")]


@pytest.mark.parametrize(("kind", "arch"), [*((kind, None) for kind in backbones.__all__), *MORE_ARCHS])
def test_half_precision_at_full_depth(kind, arch):
    """Errors of many layers add up. In bfloat16, LiSANet and iViT exceed 2e-2, half of which is the rounding of their weights."""
    model, image = build(dict(type=kind, arch=arch or smallest_arch(kind))).eval(), torch.randn(1, 3, 96, 128)

    def errors(maps) -> list[float]:
        return [((a.float() - b).norm() / b.norm()).item() for a, b in zip(maps, expected, strict=True)]

    with torch.no_grad():
        expected = model(image)
        for dtype in (torch.float16, torch.bfloat16):
            half = copy.deepcopy(model).to(dtype)
            found = errors(half(image.to(dtype)))
            rounded = errors(half.float()(image.to(dtype).float()))
            assert max(found) < max(2e-2, 2.5 * max(rounded)), (dtype, found, rounded)


@pytest.mark.parametrize("name", CASES)
def test_built_without_memory_and_loaded(name):
    """On the meta device, then on a CPU with memory of any content, then with the weights."""
    model, image = build(name).eval(), torch.randn(1, 3, 64, 72)
    with torch.device("meta"):
        empty = MODELS.build(CASES[name])
    empty = empty.to_empty(device="cpu").eval()
    for tensor in (*empty.parameters(), *empty.buffers()):
        tensor.data.fill_(-(10**9) if not tensor.is_floating_point() else torch.nan)
    empty.load_state_dict(model.state_dict())
    with torch.no_grad():
        assert all(map(torch.equal, empty(image), model(image)))
    with torch.no_grad():
        torch.manual_seed(1)
        expected = model.train()(image.repeat(2, 1, 1, 1))
        torch.manual_seed(1)
        assert all(map(torch.equal, empty.train()(image.repeat(2, 1, 1, 1)), expected))


@pytest.mark.parametrize("name", CASES)
def test_stages_are_frozen_at_construction(name):
    """Before ``train()``: DistributedDataParallel registers what is not frozen when it wraps the model."""
    for frozen in range(MODELS.build(CASES[name]).num_stages + 1):
        model = MODELS.build({**CASES[name], "frozen_stages": frozen})
        built = {key for key, p in model.named_parameters() if not p.requires_grad}
        model.train()
        assert built == {key for key, p in model.named_parameters() if not p.requires_grad}


@pytest.mark.parametrize("name", CASES)
def test_recomputing_updates_statistics_once(name):
    states = []
    for with_cp in (False, True):
        model = build(name, with_cp=with_cp, drop_path_rate=0.0).train()
        torch.manual_seed(1)
        sum(m.square().mean() for m in model(torch.randn(2, 3, 64, 64))).backward()
        states.append(dict(model.named_buffers()))
    torch.testing.assert_close(*states)
    assert all(module.momentum for module in model.modules() if hasattr(module, "momentum"))


@pytest.mark.parametrize("name", CASES)
def test_batch_norms_may_be_converted(name):
    """To synchronised ones by PyTorch, and back by MMEngine, which replace each of them."""
    model, image = build(name, drop_path_rate=0.0).train(), torch.randn(2, 3, 64, 72)
    with torch.no_grad():
        expected = model(image)
        for convert in (nn.SyncBatchNorm.convert_sync_batchnorm, revert_sync_batchnorm):
            model = convert(model)
            torch.testing.assert_close(model(image), expected)


@pytest.mark.parametrize("name", CASES)
def test_an_empty_batch(name):
    """In training, as the last batch of a process may be; its gradients are zeros."""
    model = build(name)
    for mode in (True, False):
        maps = model.train(mode)(torch.randn(0, 3, 64, 72))
        assert [m.shape[:2] for m in maps] == [(0, c) for c in model.feature_channels]
        sum(m.sum() for m in maps).backward()
    assert all(p.grad is None or not p.grad.any() for p in model.parameters())
    assert all(buffer.isfinite().all() for buffer in model.buffers())


@pytest.mark.parametrize("name", CASES)
def test_integers_are_refused(name):
    with pytest.raises(TypeError, match=r"'torch\.uint8'; convert it to floating point"):
        build(name)(torch.zeros(1, 3, 64, 64, dtype=torch.uint8))


@pytest.mark.parametrize("name", CASES)
def test_number_of_extra_tokens(name):
    """What a block returns beside the tokens of the map, for mmpretrain's ``vis_cam``."""
    model, tokens = build(name).eval(), {}
    for i, stage in enumerate(model.stages):
        stage.register_forward_hook(lambda _, inputs, output, i=i: tokens.update({i: output}))
    with torch.no_grad():
        model(torch.randn(1, 3, 64, 72))
    x, grid = tokens[model.num_stages - 1]
    assert model.num_extra_tokens == x.shape[1] - grid[0] * grid[1]
