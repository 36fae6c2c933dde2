"""Linear layers that other libraries wrap, where they are computed again in the backward pass and where they are called."""

import pytest
import torch
from torch import nn

from helpers.backbones import CASES
from mmlisa.registry import MODELS

NAMES = ("lisanet-hybrid", "flatten-swin", "h-vit3")


def build(name: str) -> nn.Module:
    torch.manual_seed(0)
    backbone = MODELS.build({**CASES[name], "drop_path_rate": 0.0})
    for p in backbone.parameters():  # no branch starts at zero
        p.data.add_(0.02 * torch.randn_like(p))
    return backbone


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
    wrapped = {key: LowRank(layer) for key, layer in model.named_modules() if isinstance(layer, nn.Linear)}
    for key, layer in wrapped.items():
        model.set_submodule(key, layer)
    sum(m.square().mean() for m in model.train()(image)).backward()
    model.eval()
    assert all(p.grad is not None for layer in wrapped.values() for p in (layer.up.weight, layer.down.weight))
    with torch.no_grad():
        state = {key.replace(".inside", ""): t for key, t in model.state_dict().items()}
        plain.load_state_dict({key: state[key] for key in plain.state_dict()})
        for key, layer in wrapped.items():
            plain.get_submodule(key).weight += layer.up.weight @ layer.down.weight
        torch.testing.assert_close(model(image), plain(image), rtol=1e-4, atol=1e-4)
