"""Residual branches, whole and in chunks: always ``scale(x) + drop_path(branch(norm(x)))``, and nothing is overwritten."""

import pytest
import torch
from timm.layers import DropPath
from torch import nn

from mmlisa.models.backbones.base import Stage
from mmlisa.models.layers import Block, Mlp, SepConv, residual
from mmlisa.ops import chunks


class Times(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.factors = nn.Parameter(torch.rand(channels))

    def forward(self, x):
        return x * self.factors


BRANCHES = {
    "mlp": lambda: Mlp(3, 12),
    "conv-mlp-1": lambda: Mlp(3, 12, 1),
    "conv-mlp-3": lambda: Mlp(3, 12, 3),
    "sep-conv": lambda: SepConv(3, 7),
}


@pytest.fixture
def counted(monkeypatch):
    """Counts the calls of the branches' first part."""
    calls = []
    for branch in (Mlp, SepConv):
        original = branch.expand
        monkeypatch.setattr(branch, "expand", lambda self, x, f=original: (calls.append(x.shape), f(self, x))[1])
    return calls


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("name", BRANCHES)
def test_chunks_equal_the_formula(name, batch, scaled, counted, monkeypatch):
    torch.manual_seed(0)
    grid, norm, drop_path = (37, 10), nn.LayerNorm(3).double(), DropPath(0.5).eval()
    branch = BRANCHES[name]().double().eval()
    scale = Times(3).double() if scaled else None
    x = torch.randn(batch, 370, 3, dtype=torch.double)
    kept = x.clone()
    expected = (x if scale is None else x * scale.factors) + branch(norm(x), grid)
    torch.testing.assert_close(residual(x, norm, branch, drop_path, grid, scale), expected, rtol=0, atol=0)
    monkeypatch.setattr(chunks, "CHUNK", 8 * branch.hidden * 10 * batch // torch.get_num_threads())
    counted.clear()
    with torch.no_grad():
        y = residual(x, norm, branch, drop_path, grid, scale)
    assert len(counted) == 5
    assert sum(shape[:-1].numel() for shape in counted) == batch * 370, "a token was computed twice or never"
    torch.testing.assert_close(y, expected.detach(), rtol=1e-12, atol=1e-12)
    assert torch.equal(x, kept)


def test_no_chunks_where_they_would_change_something(counted, monkeypatch):
    """In training, where paths are dropped per image; with prefix tokens, which are not on the map; where a hook listens."""
    monkeypatch.setattr(chunks, "CHUNK", 1200)
    norm, drop_path, branch = nn.LayerNorm(3), DropPath(0.0), Mlp(3, 12, 3).eval()
    x, grid = torch.randn(1, 370, 3), (37, 10)

    def calls(x=x, branch=branch):
        counted.clear()
        with torch.no_grad():
            residual(x, norm, branch, drop_path, grid)
        return len(counted)

    assert calls() > 1
    assert calls(x=torch.randn(1, 371, 3)) == 1
    assert calls(branch=Mlp(3, 12, 3).train()) == 1
    for watched in (norm, branch, branch.fc1, branch.dwconv, branch.act, drop_path):
        seen = []
        with watched.register_forward_hook(lambda module, inputs, output, seen=seen: seen.append(output)):
            assert calls() == 1
        assert len(seen) == 1
        with watched.register_forward_pre_hook(lambda module, inputs: None):
            assert calls() == 1
    with nn.modules.module.register_module_forward_hook(lambda module, inputs, output: None):
        assert calls() == 1
    assert calls() > 1


def test_a_stage_adds_in_place_in_its_own_memory_alone(monkeypatch):
    """All branches after the first; not where a hook could keep a result, and never into what a caller has."""
    addresses = []

    class Watched(Block):
        def forward(self, x, grid):
            y = super().forward(x, grid)
            addresses.append((x.data_ptr(), y.data_ptr()))
            return y

    class Attention(nn.Linear):
        def forward(self, x, grid):
            return super().forward(x)

    stage = Stage([Watched(8, Attention(8, 8), mlp_ratio=2) for _ in range(3)]).eval()
    x, grid = torch.randn(1, 15, 8), (3, 5)
    expected, kept = stage(x, grid)[0].detach(), x.clone()
    addresses.clear()
    with torch.no_grad():
        torch.testing.assert_close(stage(x, grid)[0], expected)
        assert torch.equal(x, kept)
        assert addresses[0][0] != addresses[0][1]
        assert addresses[0][1] == addresses[1][1] == addresses[2][1]
        first = stage.blocks[0](x, grid)
        held = first.clone()
        stage.blocks[1](first, grid)
        assert torch.equal(first, held), "a block that is called by hand owns nothing"
        results = []
        with stage.blocks[0].norm2.register_forward_pre_hook(lambda module, inputs: results.append(inputs[0])):
            stage(x, grid)
        torch.testing.assert_close(results[0], x + stage.blocks[0].attn(stage.blocks[0].norm1(x), grid))


def kept_bytes(function, *modules):
    """Of the tensors that ``function`` keeps for the backward pass, beside parameters."""
    own = {p.untyped_storage().data_ptr() for m in modules for p in m.parameters()}
    kept = {}

    def pack(t):
        kept[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        function()
    return sum(size for pointer, size in kept.items() if pointer not in own)


@pytest.mark.parametrize(("name", "width"), [("mlp", 3 + 12), ("conv-mlp-3", 3 + 12), ("sep-conv", 3 + 6)])
def test_training_keeps_what_linear_layers_return(name, width):
    """And the tokens; not where somebody watches a layer, or has replaced one by another or its method."""
    norm, branch = nn.LayerNorm(3), BRANCHES[name]().train()
    x, grid = torch.randn(1, 370, 3, requires_grad=True), (37, 10)

    def kept():
        return kept_bytes(lambda: residual(x, norm, branch, None, grid), norm, branch)

    lean = 4 * 370 * width
    assert kept() == lean
    for register in (
        branch.act.register_forward_hook,
        norm.register_forward_pre_hook,
        branch.register_full_backward_hook,
        nn.modules.module.register_module_full_backward_hook,
    ):
        with register(lambda *args: None):
            assert kept() > lean
    branch.act.forward = torch.relu
    assert kept() > lean
    del branch.act.forward
    branch.act = nn.SiLU()
    y = residual(x, norm, branch, None, grid)
    torch.testing.assert_close(y, x + branch(norm(x), grid))
    assert kept() > lean


def test_hooks_see_every_layer_and_both_passes():
    branch, norm = Mlp(3, 12, 3), nn.LayerNorm(3)
    forward, backward = [], []
    for part in (norm, branch, *branch.children()):
        part.register_forward_hook(lambda module, inputs, output: forward.append(module))
        part.register_full_backward_hook(lambda module, inputs, output: backward.append(module))
    residual(torch.randn(2, 6, 3, requires_grad=True), norm, branch, None, (2, 3)).sum().backward()
    assert forward == [norm, branch.fc1, branch.dwconv, branch.act, branch.fc2, branch]
    assert set(backward) == set(forward)
    assert len(backward) == len(forward)


def test_no_tokens_are_no_mistake():
    with torch.no_grad():
        assert residual(torch.empty(0, 15, 3), nn.LayerNorm(3), Mlp(3, 12), DropPath(), (5, 3)).shape == (0, 15, 3)


def test_a_block_is_two_residual_branches():
    torch.manual_seed(0)

    class Attention(nn.Linear):
        def forward(self, x, grid):
            return super().forward(x.flip(1))

    block = Block(8, Attention(8, 8), mlp_ratio=2, mlp_conv=3).double()
    x = torch.randn(2, 15, 8, dtype=torch.double)
    y = x + block.attn(block.norm1(x), (3, 5))
    hidden = block.mlp.fc1(block.norm2(y)).mT.unflatten(2, (3, 5))
    hidden = nn.functional.conv2d(hidden, block.mlp.dwconv.weight, block.mlp.dwconv.bias, padding=1, groups=16)
    expected = y + block.mlp.fc2(nn.functional.gelu(hidden.flatten(2).mT))
    torch.testing.assert_close(block(x, (3, 5)), expected)
