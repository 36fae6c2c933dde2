import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mmlisa.complexity import MODULE_RULES, count
from mmlisa.models.attention import build_attention


class Call(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def tensor(*shape):
    return torch.empty(*shape, device="meta")


@pytest.mark.parametrize(
    ("module", "shape", "work"),
    [
        (nn.Linear(8, 16), (2, 5, 8), dict(linear=2 * 5 * 8 * 16, bias=2 * 5 * 16)),
        (nn.Linear(8, 16, bias=False), (2, 5, 8), dict(linear=2 * 5 * 8 * 16)),
        (nn.Conv2d(6, 4, 3, stride=2, groups=2), (1, 6, 9, 9), dict(conv=4 * 16 * 3 * 9, bias=4 * 16)),
        (nn.Conv3d(2, 4, 3, padding=1), (1, 2, 3, 4, 5), dict(conv=4 * 60 * 2 * 27, bias=4 * 60)),
        (nn.ConvTranspose2d(6, 4, 2, stride=2), (1, 6, 5, 5), dict(conv=6 * 25 * 4 * 4, bias=4 * 100)),
        (nn.LayerNorm(8), (2, 5, 8), dict(norm=80)),
        (nn.BatchNorm2d(8), (2, 8, 3, 3), dict(norm=144)),
        (nn.Sequential(nn.ReLU(inplace=True), nn.Hardswish(), nn.GELU()), (2, 7), dict(activation=42)),
    ],
)
def test_layers(module, shape, work):
    counts = count(module.to("meta"), tensor(*shape))
    assert {kind: number for kind, number in counts.work.items() if number} == work
    assert counts.parameters == sum(p.numel() for p in module.parameters())


def test_a_shared_weight_counts_once():
    first, second = nn.Linear(8, 8), nn.Linear(8, 8)
    second.weight = first.weight
    counts = count(nn.Sequential(first, second, nn.LayerNorm(8)), torch.zeros(1, 8))
    assert counts.layer_weights == 8 * 8
    assert counts.parameters == 8 * 8 + 2 * 8 + 2 * 8


@pytest.mark.parametrize(
    ("function", "shapes", "products"),
    [
        (torch.matmul, [(2, 3, 4), (4, 5)], 2 * 3 * 4 * 5),
        (torch.matmul, [(2, 3, 4), (4,)], 2 * 3 * 4),
        (lambda a, b: torch.einsum("bhcn,bhdn->bhcd", a, b), [(2, 3, 4, 7), (2, 3, 5, 7)], 2 * 3 * 4 * 5 * 7),
        (F.scaled_dot_product_attention, [(2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6)], 2 * 3 * 5 * 7 * (4 + 6)),
        (lambda a, b: a * b, [(2, 3), (2, 3)], 0),
    ],
)
def test_products(function, shapes, products):
    assert count(Call(function), *(tensor(*shape) for shape in shapes)).macs() == products


def test_the_softmax_of_attention_counts_the_pairs_of_tokens():
    shapes = [(2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6)]
    counts = count(Call(F.scaled_dot_product_attention), *(tensor(*shape) for shape in shapes))
    assert counts.work["softmax"] == 2 * 3 * 5 * 7


def test_fft_counts_each_transformed_channel():
    both_ways = Call(lambda x: torch.fft.irfft2(torch.fft.rfft2(x), s=x.shape[-2:]))
    counts = count(both_ways, tensor(2, 3, 4, 8))
    assert counts.work["fft"] == 2 * (2 * 3) * 32 * 5
    assert counts.macs() == 0


def test_a_rule_replaces_what_the_module_computes_itself_but_not_its_submodules(monkeypatch):
    class Operator(nn.Module):
        def __init__(self):
            super().__init__()
            self.proj = nn.Linear(4, 4)

        def forward(self, x):
            x = x @ x.transpose(-1, -2)
            return self.proj(x[..., :4]) @ x

    class Derived(Operator):
        pass

    monkeypatch.setitem(MODULE_RULES, Operator, lambda module, x: dict(matmul=1000 * x.shape[0]))
    counts = count(nn.Sequential(Derived(), nn.Linear(4, 2)).to("meta"), tensor(2, 4, 4))
    assert counts.work["matmul"] == 2000
    assert counts.work["linear"] == 2 * 4 * (4 * 4 + 4 * 2)


def test_lisa_has_the_papers_count():
    build_attention(dict(type="LiSA"), 32, 2, (2, 2))  # registers everything before the meta device is the default
    with torch.device("meta"):
        operator = build_attention(dict(type="LiSA", num_patterns=5), 32, 2, (4, 8))
    counts = count(operator, tensor(3, 32, 32), (4, 8))
    assert counts.macs() == 3 * 32 * (4 * 32 * 32 + 2 * 5 * 32)
    assert counts.work["fft"] == 3 * 2 * 32 * (1 + 5) * 32 * 5


def test_counting_leaves_the_mode_and_the_outputs_alone():
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout())
    count(model, torch.randn(2, 4))
    assert model.training
    assert model(torch.ones(1, 4)).requires_grad
    model[1].eval()  # as a frozen norm
    with pytest.raises(RuntimeError):
        count(model, torch.randn(2, 5))
    assert [each.training for each in model.modules()] == [True, True, False]


def test_a_batch_counts_every_image():
    """Callers that report one image divide by the batch."""
    layer = nn.Conv2d(3, 8, 3, padding=1, bias=False)
    one, three = (count(layer, torch.zeros(batch, 3, 10, 12)).macs() for batch in (1, 3))
    assert one == 8 * 3 * 9 * 10 * 12
    assert three == 3 * one
