"""The modules around the operators of LiSA's Table 3 that are not functions of their own."""

import pytest
import torch
import torch.nn.functional as F
from timm.models.metaformer import Pooling

from mmlisa.models.attention import build_attention


def build(name, grid=(5, 6), **options):
    torch.manual_seed(0)
    return build_attention(dict(type=name, **options), 32, 4, grid).eval()


def to_map(x, grid):
    return x.transpose(1, 2).reshape(x.shape[0], -1, *grid)


def to_tokens(x):
    return x.flatten(2).transpose(1, 2)


def attend(query, key, value, num_heads):
    query, key, value = (t.unflatten(2, (num_heads, -1)).transpose(1, 2) for t in (query, key, value))
    logits = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    return (logits.softmax(-1) @ value).transpose(1, 2).flatten(2)


@pytest.mark.parametrize(("kernel_size", "grid"), [(7, (9, 8)), ((3, 5), (6, 7)), ((3, 7, 7), (2, 5, 6))])
def test_depthwise_conv(kernel_size, grid):
    operator = build("DepthwiseConv", grid, kernel_size=kernel_size)
    x = torch.randn(2, torch.Size(grid).numel(), 32)
    conv = F.conv2d if len(grid) == 2 else F.conv3d
    y = conv(to_map(x, grid), operator.conv.weight, operator.conv.bias, padding="same", groups=32)
    torch.testing.assert_close(operator(x, grid), operator.proj(to_tokens(y)))


def test_average_pooling_is_timms():
    x = torch.randn(2, 30, 32)
    expected = to_tokens(Pooling()(to_map(x, (5, 6))))
    torch.testing.assert_close(build("AveragePooling")(x, (5, 6)), expected)


@pytest.mark.parametrize("stride", [1, 2])
def test_convolutional_attention(stride):
    operator = build("ConvolutionalAttention", stride=stride)
    x = torch.randn(2, 30, 32)
    tokens = [
        to_tokens(F.conv2d(to_map(t, (5, 6)), conv.weight, stride=s, padding=1, groups=32))
        for t, conv, s in zip(operator.qkv(x).split(32, 2), operator.convs, (1, stride, stride), strict=True)
    ]
    assert tokens[1].shape[1] == (30 if stride == 1 else 9)
    torch.testing.assert_close(operator(x, (5, 6)), operator.proj(attend(*tokens, 4)))


def test_inception_mixer():
    def convolve(conv, tokens):
        return to_tokens(F.conv2d(to_map(tokens, (5, 6)), conv.weight, conv.bias, padding=1, groups=len(conv.weight)))

    operator = build("InceptionMixer", attention_heads=2)
    x = torch.randn(2, 30, 32)
    pooled = operator.pool_linear(to_tokens(F.max_pool2d(to_map(x[..., :8], (5, 6)), 3, 1, 1)))
    convolved = convolve(operator.conv, operator.conv_linear(x[..., 8:16]))
    attended = attend(*operator.qkv(x[..., 16:]).split(16, 2), 2)
    y = torch.cat([pooled, convolved, attended], 2)
    y = y + convolve(operator.fuse, y)
    torch.testing.assert_close(operator(x, (5, 6)), operator.proj(y))
