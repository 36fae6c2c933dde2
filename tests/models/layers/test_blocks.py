"""Tensors that branches save for the backward pass, hooks inside of them, and the block around them."""

import weakref

import pytest
import torch
from torch import nn

from mmlisa.models.backbones.hvit3 import ShortcutConvMlp
from mmlisa.models.layers.blocks import Block, LayerNorm, Mlp, SepConv, StarReLU

# A branch, and the numbers per token that linear layers return in it.
BRANCHES = {
    "mlp": (lambda: Mlp(3, 12), 12),
    "conv-mlp-3": (lambda: Mlp(3, 12, 3), 12),
    "sep-conv": (lambda: SepConv(3, 7), 6),
    "star": (lambda: SepConv(3, 7, act=StarReLU()), 6),
    "shortcut-conv": (lambda: ShortcutConvMlp(3, 12), 12),
}


def kept_bytes(function, *modules):
    """Bytes of the tensors that ``function`` keeps for the backward pass, beside parameters."""
    own = {p.untyped_storage().data_ptr() for m in modules for p in m.parameters()}
    kept = {}

    def pack(t):
        kept[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        function()
    return sum(size for pointer, size in kept.items() if pointer not in own)


STATISTICS = 2  # a norm saves a mean and a deviation per token


@pytest.mark.parametrize("name", BRANCHES)
def test_training_saves_what_linear_layers_return(name):
    """And the tokens; more if a layer has a hook, another class or another forward, or if the norm's output was changed."""
    build, width = BRANCHES[name]
    norm, branch = LayerNorm(3), build().train()
    x, grid = torch.randn(1, 370, 3, requires_grad=True), (37, 10)

    def kept():
        return kept_bytes(lambda: branch(norm(x), grid), norm, branch)

    lean = 4 * 370 * (3 + width + STATISTICS)
    assert kept() == lean
    for register in (
        branch.act.register_forward_hook,
        branch.register_full_backward_hook,
        nn.modules.module.register_module_full_backward_hook,
    ):
        with register(lambda *args: None):
            assert kept() > lean
    branch.act.forward = nn.functional.silu
    assert kept() > lean
    del branch.act.forward
    assert kept() == lean
    assert kept_bytes(lambda: branch(nn.functional.layer_norm(x, (3,)), grid), branch) == lean + 4 * 370 * 3
    act, branch.act = branch.act, nn.SiLU()
    assert kept() > lean
    branch.act = act
    branch.layers()[-1].__class__ = type("LowRank", (nn.Linear,), {})  # as LoRA libraries do
    assert kept() > lean


@pytest.mark.parametrize("name", BRANCHES)
@pytest.mark.parametrize("create_graph", [False, True])
def test_gradients_are_those_of_the_layers(name, create_graph):
    """Gradients of the norm, its output, the branch and the tokens, also after a hook wrote into the norm's output."""
    torch.manual_seed(0)
    norm, branch, grid = LayerNorm(3).double(), BRANCHES[name][0]().double(), (5, 4)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    x, weight = torch.randn(2, 20, 3, dtype=torch.double, requires_grad=True), torch.randn(2, 20, 3, dtype=torch.double)

    def gradients(by, written):
        normed = by(x)
        if written:
            normed.mul_(2)
        y = normed
        for layer in branch.layers() if by is not norm else []:
            y = layer(y, grid) if layer is branch.dwconv else layer(y)
        y = branch(normed, grid) if by is norm else y
        wanted = [x, normed, *norm.parameters(), *branch.parameters()]
        first = torch.autograd.grad((y * weight).sum().square(), wanted, create_graph=create_graph)
        if not create_graph:
            return [y.detach(), *first]
        second = [p for p in wanted if p is not normed]
        return [y.detach(), *first, *torch.autograd.grad(sum(g.square().sum() for g in first), second)]

    def plain(x):
        return nn.functional.layer_norm(x, (3,), norm.weight, norm.bias, norm.eps)

    for written in (False, True):
        found, expected = gradients(norm, written), gradients(plain, written)
        assert all(g.abs().max() > 1e-3 for g in expected)
        torch.testing.assert_close(found, expected)


def test_an_export_of_a_model_with_shared_layers():
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = self.second = SepConv(8, 3)

        def forward(self, x):
            return self.second(self.first(x, (4, 6)), (4, 6))

    torch.manual_seed(0)
    model, x = Twice().eval(), torch.randn(1, 24, 8)
    torch.testing.assert_close(torch.export.export(model, (x,), strict=False).module()(x), model(x))


def test_star_relu_keeps_the_type_and_scales_before_it_squares():
    layer = StarReLU()
    nn.init.constant_(layer.scale, 1e-3)
    x = torch.tensor([300.0, -1.0], dtype=torch.float16)  # 300² is beyond fp16
    torch.testing.assert_close(layer(x), torch.tensor([90.0, 0.0], dtype=torch.float16))


@torch.no_grad()
def test_no_branch_outlives_its_sum():
    """On a large map, a tensor of tokens has megabytes: one that lives on through the MLP raises the network's peak."""
    results = []

    class Branch(nn.Module):
        def forward(self, x, grid):
            assert all(result() is None for result in results)
            results.append(weakref.ref(y := x + 1))
            return y

    block = Block(2, Branch(), mlp_ratio=1)
    block.mlp = Branch()
    block(torch.zeros(1, 4, 2), (2, 2))
    assert len(results) == 2
