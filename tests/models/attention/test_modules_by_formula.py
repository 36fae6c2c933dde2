"""Operators as modules, written out as functions of their weights, in fp64: what goes where, around functions that have tests."""

from functools import partial
from math import prod

import pytest
import torch
import torch.nn.functional as F
from timm.models.metaformer import Pooling
from torch import Tensor, nn

from helpers.written_out import heads as by_head
from helpers.written_out import joined, to_map, to_tokens
from mmlisa import ops
from mmlisa.models.attention import (
    HeadPool,
    LinearAngularAttention,
    build_attention,
    castling_operators,
    drop_aux,
    with_rotary,
)
from mmlisa.models.backbones import CastlingLCNetViT
from mmlisa.models.layers.grids import RelativePosition
from mmlisa.models.layers.tokens import LePE

HEADS, CHANNELS, GRID = 2, 12, (4, 5)


def build(name: str, grid=GRID, channels=CHANNELS, num_heads=HEADS, **options) -> nn.Module:
    torch.manual_seed(0)
    operator = build_attention(dict(type=name, **options), channels, num_heads, grid).double().eval()
    for parameter in operator.parameters():
        nn.init.normal_(parameter, std=0.3)
    return operator


def tokens(count: int = 20, channels: int = CHANNELS) -> Tensor:
    return torch.randn(2, count, channels, dtype=torch.float64)


def heads(x: Tensor) -> list[Tensor]:
    """Query, key, value ``[B, h, N, c]``, a head's channels side by side."""
    return [by_head(t, HEADS) for t in x.chunk(3, dim=2)]


def softmax(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | float = 0.0) -> Tensor:
    return joined((query @ key.mT / query.shape[3] ** 0.5 + bias).softmax(3) @ value)


def unit(t: Tensor) -> Tensor:
    return t / t.norm(dim=3, keepdim=True)


def matrix(position: RelativePosition, grid=GRID) -> Tensor:
    """Entry (i, j) is the table at the offset i - j, on the table's own grid."""
    rows, columns = torch.meshgrid(*map(torch.arange, grid), indexing="ij")
    rows, columns = rows.flatten(), columns.flatten()
    dy, dx = (t[:, None] - t + size - 1 for t, size in ((rows, grid[0]), (columns, grid[1])))
    return position.table[..., dy, dx]


@pytest.mark.parametrize("prefix", [0, 1])
@pytest.mark.parametrize("rpe", [None, "shared", "head"])
def test_softmax(rpe, prefix):
    operator, x = build("SoftmaxAttention", rpe=rpe), tokens(20 + prefix)
    bias = F.pad(matrix(operator.rpe), (prefix, 0, prefix, 0)) if rpe else 0.0
    torch.testing.assert_close(operator(x, GRID), operator.proj(softmax(*heads(operator.qkv(x)), bias)))


@pytest.mark.parametrize(("kernel_size", "grid"), [(7, (9, 8)), ((3, 5), (6, 7)), ((3, 7, 7), (2, 5, 6))])
def test_depthwise_conv(kernel_size, grid):
    operator, x = build("DepthwiseConv", grid, kernel_size=kernel_size), tokens(prod(grid))
    conv = F.conv2d if len(grid) == 2 else F.conv3d
    y = conv(to_map(x, grid), operator.conv.weight, operator.conv.bias, padding="same", groups=CHANNELS)
    torch.testing.assert_close(operator(x, grid), operator.proj(to_tokens(y)))


def test_average_pooling_is_timms():
    x = tokens()
    torch.testing.assert_close(build("AveragePooling")(x, GRID), to_tokens(Pooling()(to_map(x, GRID))))


@pytest.mark.parametrize("stride", [1, 2])
def test_convolutional_attention(stride):
    operator, x = build("ConvolutionalAttention", stride=stride), tokens()
    parts = zip(operator.qkv(x).chunk(3, dim=2), operator.convs, (1, stride, stride), strict=True)
    query, key, value = (
        by_head(to_tokens(F.conv2d(to_map(t, GRID), conv.weight, stride=s, padding=1, groups=CHANNELS)), HEADS)
        for t, conv, s in parts
    )
    assert key.shape[2] == (20 if stride == 1 else 6)
    torch.testing.assert_close(operator(x, GRID), operator.proj(softmax(query, key, value)))


def test_inception_mixer():
    """A quarter of the channels is pooled, a quarter convolved, half attends; a convolution fuses them."""

    def convolve(conv, t):
        return to_tokens(F.conv2d(to_map(t, GRID), conv.weight, conv.bias, padding=1, groups=len(conv.weight)))

    operator, x = build("InceptionMixer", channels=32, num_heads=4, attention_heads=2), tokens(channels=32)
    pooled = operator.pool_linear(to_tokens(F.max_pool2d(to_map(x[..., :8], GRID), 3, 1, 1)))
    convolved = convolve(operator.conv, operator.conv_linear(x[..., 8:16]))
    y = torch.cat([pooled, convolved, softmax(*heads(operator.qkv(x[..., 16:])))], dim=2)
    torch.testing.assert_close(operator(x, GRID), operator.proj(y + convolve(operator.fuse, y)))


def test_relational():
    operator, x = build("RelationalSelfAttention", num_patterns=3), tokens()
    query, key, value = (unit(t) for t in heads(operator.qkv(x)))
    positions = (matrix(p) for p in (operator.basic, operator.encode, operator.decode, operator.context))
    expected = operator.proj(joined(ops.relational(query, key, value, *positions)))
    torch.testing.assert_close(operator(x, GRID), expected)


def test_lambda_convolution():
    operator, x = build("LambdaConvolution"), tokens()
    for norm in (operator.norm_query, operator.norm_value):
        nn.init.uniform_(norm.running_var, 0.5, 2)
        nn.init.normal_(norm.running_mean)
    query, key, value = operator.qkv(x).chunk(3, dim=2)
    query, value = operator.norm_query(query.mT).mT, operator.norm_value(value.mT).mT
    expected = ops.lambda_convolution(*heads(torch.cat([query, key, value], dim=2)), matrix(operator.relative))
    torch.testing.assert_close(operator(x, GRID), joined(expected))


@pytest.mark.parametrize("per_head", [False, True])
def test_structure_aware_weights(per_head):
    operator, x = build("StructureAwareAttention", form="weights", per_head=per_head), tokens()
    query, key, value = heads(operator.qkv(x))
    weights = unit(query) @ unit(key).mT * matrix(operator.relative)
    torch.testing.assert_close(operator(x, GRID), operator.proj(joined(weights @ value)))


@pytest.mark.parametrize("form", ["dot", "hadamard"])
def test_structure_aware_patterns(form):
    operator, x = build("StructureAwareAttention", form=form, num_patterns=3, encoding_bias=True), tokens()
    query, key, value = heads(operator.qkv(x))
    relative = (matrix(operator.relative_a), matrix(operator.relative_b))
    y = ops.structure_aware(unit(query), unit(key), value, *relative, operator.bias, operator.bias_a)
    torch.testing.assert_close(operator(x, GRID), operator.proj(joined(y)))


@pytest.mark.parametrize("prefix", [0, 2])
@pytest.mark.parametrize("absent", [(), ("before",), ("after",), ("before", "after")])
def test_interactive(absent, prefix):
    """Four matrices, or less (iViT's Table 8): around the softmax over the landmarks, and around the one over the tokens."""
    operator = build("InteractiveAttention", landmarks=4, **{f"mix_{when}": False for when in absent})
    x, times = tokens(20 + prefix), ("before", "after")
    mix = {f"mix_{part}": tuple(getattr(operator, f"mix_{part}_{when}") for when in times) for part in ("query", "key")}
    assert [matrix is None for pair in mix.values() for matrix in pair] == 2 * [when in absent for when in times]
    y = ops.interactive(*heads(operator.qkv(x)), GRID, 4, **mix, backend="reference")
    torch.testing.assert_close(operator(x, GRID), operator.proj(joined(y)))


def test_interactive_without_landmarks():
    operator, x = build("InteractiveAttention", landmarks=None), tokens()
    mix = (operator.mix_query_before, operator.mix_query_after)
    y = ops.interactive_softmax(*heads(operator.qkv(x)), mix=mix)
    torch.testing.assert_close(operator(x, GRID), operator.proj(joined(y)))


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("prefix", [0, 1])
def test_pooled_heads(stride, prefix):
    """The prefix skips the convolution, not the norm."""
    pool = HeadPool(6, stride).double()
    for parameter in pool.parameters():
        nn.init.normal_(parameter)
    x = torch.randn(2, 3, 20 + prefix, 6, dtype=torch.float64)
    rows = []
    for head in x.unbind(1):
        maps = F.conv2d(head[:, prefix:].mT.unflatten(2, GRID), pool.conv.weight, stride=stride, padding=1, groups=6)
        rows.append(torch.cat([head[:, :prefix], maps.flatten(2).mT], dim=1))
    expected = F.layer_norm(torch.stack(rows, dim=1), (6,), pool.norm.weight, pool.norm.bias, 1e-5)
    torch.testing.assert_close(pool(x, GRID), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("prefix", [0, 1])
def test_token_and_feature_pooling(prefix):
    """Keys and values on half the grid; queries and keys narrower than values and not added (Castling-ViT, Table 1)."""
    operator, x = build("PooledSoftmaxAttention", key_stride=2, key_dims=4), tokens(20 + prefix)
    parts = (by_head(t, HEADS) for t in operator.qkv(x).split([8, 8, 12], dim=2))
    query, key, value = (pool(t, GRID) for pool, t in zip(operator.pool, parts, strict=True))
    assert (query.shape[2], key.shape[2], value.shape[2]) == (20 + prefix, 6 + prefix, 6 + prefix)
    torch.testing.assert_close(operator(x, GRID), operator.proj(softmax(query, key, value)))


@pytest.mark.parametrize("new", [(7, 9), (3, 5), (4, 11)])
def test_relative_positions_of_another_grid_span_it(new):
    """The longest offsets of one grid are those of the other, and the origin is the origin."""
    position = RelativePosition((3,), GRID).double()
    stretched = position(new)
    n = new[0] * new[1]
    for entry, row, column in (((0, 0), 3, 4), ((0, n - 1), 0, 0), ((n - 1, 0), -1, -1), ((n - 1, new[1] - 1), -1, 4)):
        torch.testing.assert_close(stretched[:, entry[0], entry[1]], position.table[:, row, column])


@pytest.mark.parametrize("grid", [GRID, (7, 9)])
@pytest.mark.parametrize("prefix", [0, 1])
def test_focused_linear(grid, prefix):
    operator, x = build("FocusedLinearAttention"), tokens(prod(grid) + prefix)
    query, key, value = operator.qkv(x).chunk(3, dim=2)
    position = F.interpolate(to_map(operator.positional_encoding, GRID), grid, mode="bicubic")
    key = key + F.pad(to_tokens(position), (0, 0, prefix, 0))
    y = ops.focused_linear(*heads(torch.cat([query, key, value], dim=2)), operator.scale.view(HEADS, -1))
    maps = to_map(value[:, prefix:], grid).chunk(HEADS, dim=1)  # one kernel for all heads
    local = [F.conv2d(t, operator.dwc.weight, operator.dwc.bias, padding=2, groups=t.shape[1]) for t in maps]
    expected = operator.proj(joined(y) + F.pad(to_tokens(torch.cat(local, dim=1)), (0, 0, prefix, 0)))
    torch.testing.assert_close(operator(x, grid), expected)
    with torch.no_grad():  # the positions are kept now
        torch.testing.assert_close(operator(x, grid), expected)


def test_rotary_positions_turn_the_keys_and_queries_of_focused_attention():
    """A stand-in for the rotation: other factors for queries and keys of other tokens."""
    operator, x = build("FocusedLinearAttention", kernel_size=0, position=False), tokens(prod(GRID) + 1)

    def turn(t, grid):
        return t * torch.linspace(-1, 2, t.shape[2], dtype=t.dtype)[:, None]

    query, key, value = heads(operator.qkv(x))
    y = ops.focused_linear(turn(query, GRID), turn(key, GRID), value, operator.scale.view(HEADS, -1))
    torch.testing.assert_close(with_rotary(operator, turn)(x, GRID), operator.proj(joined(y)))


@pytest.mark.parametrize("grid", [GRID, (7, 9)])
def test_agent_by_its_resized_biases(grid):
    operator, x = build("AgentAttention", agents=4), tokens(prod(grid))
    query, key, value = heads(operator.qkv(x))
    agents = ops.pool_landmarks(query, grid, 4)

    def bias(part):
        maps = zip((part.map, part.rows, part.columns), (grid, (grid[0], 1), (1, grid[1])), strict=True)
        return sum(F.interpolate(t, size, mode="bilinear") for t, size in maps).flatten(2)

    y = joined(ops.agent(query, key, value, agents, bias(operator.gather_bias), bias(operator.spread_bias).mT))
    expected = operator.proj(y + operator.dwc(operator.qkv(x)[..., 2 * CHANNELS :], grid))
    torch.testing.assert_close(operator(x, grid), expected)


@pytest.mark.parametrize("prefix", [0, 1])
def test_inline(prefix):
    operator, x = build("InLineAttention"), tokens(20 + prefix)
    kernels = operator.residual(x[:, prefix:].mean(1)).unflatten(1, (-1, 9))
    value = operator.qkv(x)[:, prefix:, 2 * CHANNELS :].mT.unflatten(2, GRID)
    local = F.pad(ops.depthwise_per_image(value, kernels).flatten(2).mT, (0, 0, prefix, 0))
    expected = operator.proj(joined(ops.inline(*heads(operator.qkv(x)))) + local)
    torch.testing.assert_close(operator(x, GRID), expected)


@pytest.mark.parametrize("name", ["rala", "mala"])
def test_gated(name):
    operator, x = build(f"{name.upper()}Attention", channels=16), tokens(channels=16)
    y = joined(getattr(ops, name)(*heads(operator.qkv(x)), GRID)) + operator.lepe(operator.qkv(x)[..., 32:], GRID)
    torch.testing.assert_close(operator(x, GRID), operator.output.proj(operator.output.gate(x) * y))


@pytest.mark.parametrize(
    ("name", "options", "function"),
    [
        ("Hydra", {}, ops.hydra),
        ("Efficient", {}, ops.efficient),
        ("Cosine", {}, ops.cosine_attention),
        ("ReLUExp", {}, ops.relu_exp_attention),
        ("ReLUSoftmax", dict(average=False), partial(ops.relu_softmax_attention, average=False)),
        ("MeanCentered", {}, ops.mean_centered_attention),
    ],
)
def test_projected(name, options, function):
    operator, x = build(f"{name}Attention", **options), tokens()
    torch.testing.assert_close(operator(x, GRID), operator.proj(joined(function(*heads(operator.qkv(x))))))


def test_prefix_tokens_have_no_convolution_and_no_position():
    x, lepe = torch.randn(1, 7, 8), LePE(8, 3)
    y = lepe(x, (2, 3))
    assert not y[:, 0].any()
    torch.testing.assert_close(y[:, 1:], lepe(x[:, 1:], (2, 3)))
    operator, x = build("PolarityAwareAttention"), tokens(21)
    query, key, value, gate = operator.qkvg(x).chunk(4, dim=2)
    key = key + F.pad(operator.positional_encoding, (0, 0, 1, 0))
    scales = operator.power[0, :, 0], operator.scale.view(HEADS, -1)
    y = joined(ops.polarity_aware(*heads(torch.cat([query, key, value], dim=2)), *scales))
    y = y + F.pad(operator.dwc(value[:, 1:], GRID), (0, 0, 1, 0))
    torch.testing.assert_close(operator(x, GRID), operator.proj(y * gate))


@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize("padding", ["circular", "zeros"])
def test_lisas_local_kernels_are_convolutions(padding, size):
    """Pattern by pattern, by PyTorch's depthwise convolution."""
    torch.manual_seed(0)
    cfg = dict(type="LiSA", num_patterns=3, kernel_size=size, padding=padding)
    operator, grid = build_attention(cfg, 32, 2, (8, 9)).double().eval(), (8, 9)
    operator.kernel_a.data.mul_(3)
    x = torch.randn(2, 72, 32, dtype=torch.double)
    query, key, value = operator.qkv(x).transpose(1, 2).reshape(2, 3, 2, 16, 8, 9).unbind(1)
    query, key = F.normalize(query, dim=2), F.normalize(key, dim=2)

    def convolve(maps, kernels):  # conv2d correlates: the taps are turned around the origin
        taps = torch.fft.fftshift(kernels, dim=(-2, -1)).flip(-2, -1)[:, None]
        padded = F.pad(maps.flatten(0, 1), (size // 2,) * 4, mode="circular" if padding == "circular" else "constant")
        return F.conv2d(padded, taps, groups=taps.shape[0]).unflatten(0, maps.shape[:2])

    y = 0
    for d in range(3):
        pattern = (query * convolve(key, operator.kernel_a[:, d])).sum(2, keepdim=True)
        encoded = convolve(value, operator.kernel_b[d].expand(16, size, size))
        y = y + pattern * (encoded + operator.bias[:, d, None, None])
    y = y.reshape(2, 32, 72).transpose(1, 2)
    torch.testing.assert_close(operator(x, grid), operator.proj(operator.norm(y)))


@pytest.mark.parametrize("pooled", [False, True])
def test_the_auxiliary_branch(pooled):
    """It counts in training, unless it is dropped, and in eval mode if asked; above ε = 1 it is nothing, bit for bit."""
    torch.manual_seed(0)
    operator = LinearAngularAttention(32, HEADS, grid=(5, 6), pooled=pooled, aux=True).train()
    x = torch.randn(2, 30, 32, requires_grad=True)

    def run() -> list[Tensor]:
        y = operator(x, (5, 6))
        return [y, *torch.autograd.grad(y.sin().sum(), [x, *operator.parameters()])]

    trained, castled = run(), operator.eval()(x, (5, 6))
    assert operator.mask_size == 2 * 30 * 30
    assert 0 < operator.mask_count <= operator.mask_size
    assert not torch.allclose(trained[0], castled)
    operator.aux_in_eval = True
    assert torch.equal(trained[0], operator.eval()(x, (5, 6)))
    operator.train().epsilon = 1.5
    masked = run()
    drop_aux(operator)
    assert all(map(torch.equal, masked, run()))
    assert torch.equal(masked[0], castled)


@pytest.mark.parametrize("name", ["Cosine", "PooledSoftmax"])
def test_every_kernel_takes_the_branch(name):
    """At ε = 0 it is softmax attention, added before the projection."""
    torch.manual_seed(0)
    castled, operator = (
        build_attention(dict(type=f"{name}Attention", **options), 32, 2, (5, 6)).double()
        for options in ({}, dict(aux=True, epsilon=0.0))
    )
    assert operator.state_dict().keys() == castled.state_dict().keys()
    assert list(castling_operators(operator)) == [""]
    x = torch.randn(2, 30, 32, dtype=torch.double)
    trained, plain = operator(x, (5, 6)), operator.eval()(x, (5, 6))
    query, key, value = heads(operator.qkv(x))
    if operator.pool is not None:
        query, key, value = (pool(t, (5, 6)) for pool, t in zip(operator.pool, (query, key, value), strict=True))
    torch.testing.assert_close(trained - plain, softmax(query, key, value) @ operator.proj.weight.T)


def test_drop_aux_of_a_model():
    backbone = CastlingLCNetViT(dict(base="small", scale=0.25))
    assert list(castling_operators(backbone)) == ["stages.2.blocks.0.attn", "stages.3.blocks.0.attn"]
    assert drop_aux(backbone) == 2
    assert drop_aux(backbone) == 0
