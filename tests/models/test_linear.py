import pytest
import torch
from mmengine.model import BaseModule
from torch import nn

from mmlisa.models.layers import ChannelLinear, TokenLinear
from mmlisa.models.layers.linear import MIN_TOKENS


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(MIN_TOKENS, 5), (2, 3, 67, 5), (1, MIN_TOKENS - 1, 5)])
def test_token_linear_is_linear(shape, bias, monkeypatch):
    torch.manual_seed(0)
    layer = TokenLinear(5, 7, bias=bias)
    tokens = torch.randn(shape)
    expected = nn.functional.linear(tokens, layer.weight, layer.bias)
    assert torch.equal(layer(tokens), expected)
    calls = []
    conv2d = nn.functional.conv2d
    monkeypatch.setattr(nn.functional, "conv2d", lambda *args: calls.append(args) or conv2d(*args))
    with torch.no_grad():
        torch.testing.assert_close(layer(tokens), expected)
        # Whatever lies in memory: every second token.
        torch.testing.assert_close(layer(tokens.repeat_interleave(2, dim=-2)[..., ::2, :]), expected)
        torch.testing.assert_close(layer.double()(tokens.double()), expected.double())
    is_long = tokens.shape[:-1].numel() >= MIN_TOKENS and torch.backends.mkl.is_available()
    assert len(calls) == (2 if is_long else 0)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_channel_linear_is_a_pointwise_convolution(memory_format):
    torch.manual_seed(0)
    layer = ChannelLinear(5, 7)
    maps = torch.randn(2, 5, 17, 11).to(memory_format=memory_format)
    expected = nn.functional.conv2d(maps, layer.weight[:, :, None, None], layer.bias)
    torch.testing.assert_close(layer(maps), expected)
    with torch.no_grad():
        torch.testing.assert_close(layer(maps), expected)


@pytest.mark.parametrize("layer", [TokenLinear, ChannelLinear])
def test_init_cfg_of_linear_layers_is_obeyed(layer):
    model = BaseModule(init_cfg=dict(type="Constant", layer="Linear", val=3.0, bias=2.0))
    model.layer = layer(5, 7)
    model.init_weights()
    assert (model.layer.weight == 3).all()
    assert (model.layer.bias == 2).all()
