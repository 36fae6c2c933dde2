import pytest
import torch
from torch import nn

from mmlisa.engine import cpu
from mmlisa.models.layers import StarReLU


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
        # Whatever lies in memory: every second token.
        torch.testing.assert_close(model(tokens.repeat_interleave(2, dim=-2)[..., ::2, :]), expected)
        assert len(calls) == (2 if tokens.shape[:-1].numel() >= cpu.MIN_TOKENS else 0)
        torch.testing.assert_close(model.double()(tokens.double()), expected.double())


def test_star_relu_in_two_passes():
    layer = StarReLU().double()
    nn.init.constant_(layer.scale, 1.5)
    nn.init.constant_(layer.bias, -0.5)
    x = torch.randn(3, 5, dtype=torch.double)
    kept = x.clone()
    assert type(cpu.optimize_for_cpu(layer)) is cpu.TwoPassStarReLU
    with torch.no_grad():
        torch.testing.assert_close(layer(x), 1.5 * x.clamp(min=0) ** 2 - 0.5)
    assert torch.equal(x, kept)
    layer(x).sum().backward()
    torch.testing.assert_close(layer.scale.grad, (x.clamp(min=0) ** 2).sum()[None])


def test_subclasses_of_linear_keep_their_own_forward():
    class Doubled(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    layer = Doubled(5, 7)
    assert type(cpu.optimize_for_cpu(layer)) is Doubled
