"""Backbones under PyTorch's tools: layers with other weights, wrapped, quantised and converted layers."""

import pytest
import torch
from mmengine.model import revert_sync_batchnorm
from torch import nn
from torch.nn.utils import parametrizations, prune

from helpers.backbones import CASES
from mmlisa.registry import MODELS

LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
# Layers that are computed again in the backward pass, and layers that are called as they are.
NAMES = ("lisanet-hybrid", "flatten-swin", "h-vit3")


def build(name: str) -> nn.Module:
    torch.manual_seed(0)
    backbone = MODELS.build({**CASES[name], "drop_path_rate": 0.0})
    for p in backbone.parameters():  # no branch starts at zero
        p.data.add_(0.02 * torch.randn_like(p))
    return backbone


def layers(model: nn.Module, kinds: type | tuple[type, ...] = LAYERS) -> dict[str, nn.Module]:
    return {name: module for name, module in model.named_modules() if isinstance(module, kinds)}


def step(model: nn.Module, image: torch.Tensor) -> None:
    optimizer = torch.optim.SGD([p for p in model.train().parameters() if p.requires_grad], lr=1e-3)
    sum(m.square().mean() for m in model(image)).backward()
    optimizer.step()
    model.eval()


def halved(layer: nn.Module) -> None:
    prune.l1_unstructured(layer, "weight", 0.5)


TOOLS = {
    "pruning": (halved, lambda layer: layer.weight_orig * layer.weight_mask),
    "weight norm": (parametrizations.weight_norm, lambda layer: layer.weight),
}


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("name", NAMES)
def test_layers_have_the_weights_that_a_tool_gives_them(name, tool):
    """After a step of training as well: the network equals one with these weights in ordinary layers."""
    apply, weight_of = TOOLS[tool]
    model, plain, image = build(name).eval(), build(name).eval(), torch.randn(2, 3, 64, 72)
    for layer in layers(model).values():
        apply(layer)
    step(model, image)
    state = {**plain.state_dict(), **{k: t for k, t in model.state_dict().items() if k in plain.state_dict()}}
    state |= {f"{key}.weight": weight_of(layer).detach() for key, layer in layers(model).items()}
    plain.load_state_dict(state)
    with torch.no_grad():
        torch.testing.assert_close(model(image), plain(image), rtol=1e-4, atol=1e-4)


class LowRank(nn.Module):
    """A linear layer with an added product, and without a weight, as LoRA libraries have it."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.inside = layer.requires_grad_(False)
        self.down = nn.Linear(layer.in_features, 2, bias=False)
        self.up = nn.Linear(2, layer.out_features, bias=False)

    def forward(self, x):
        return self.inside(x) + self.up(self.down(x))


@pytest.mark.parametrize("name", NAMES)
def test_linear_layers_may_be_wrapped(name):
    """The wrapped network equals one with the sum of both weights, and both of its matrices learn."""
    model, plain, image = build(name), build(name).eval(), torch.randn(2, 3, 64, 72)
    wrapped = {key: LowRank(layer) for key, layer in layers(model, nn.Linear).items()}
    for key, layer in wrapped.items():
        model.set_submodule(key, layer)
    step(model, image)
    assert all(p.grad is not None for layer in wrapped.values() for p in (layer.up.weight, layer.down.weight))
    with torch.no_grad():
        state = {key.replace(".inside", ""): t for key, t in model.state_dict().items()}
        plain.load_state_dict({key: state[key] for key in plain.state_dict()})
        for key, layer in wrapped.items():
            plain.get_submodule(key).weight += layer.up.weight @ layer.down.weight
        torch.testing.assert_close(model(image), plain(image), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_weights_of_eight_bits(name):
    quantization = pytest.importorskip("torchao.quantization")
    model, quantized, image = build(name).eval(), build(name).eval(), torch.randn(2, 3, 64, 72)
    quantization.quantize_(quantized, quantization.Int8WeightOnlyConfig())
    assert all(type(layer.weight) is not nn.Parameter for layer in layers(quantized, nn.Linear).values())
    with torch.no_grad():
        for found, expected in zip(quantized(image), model(image), strict=True):
            assert 0 < (found - expected).norm() < 0.1 * expected.norm()


def test_batch_norms_may_be_converted():
    """To synchronised ones by PyTorch, and back by MMEngine, which replace each of them."""
    model, image = build("levit").train(), torch.randn(2, 3, 64, 72)
    with torch.no_grad():
        expected = model(image)
        for convert in (nn.SyncBatchNorm.convert_sync_batchnorm, revert_sync_batchnorm):
            model = convert(model)
            torch.testing.assert_close(model(image), expected)
