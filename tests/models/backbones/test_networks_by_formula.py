"""The networks that no library keeps, written out as functions of their weights with PyTorch's own functions, in fp64.

Every parameter is random: ones and zeros of an initialisation would hide what is left out.
"""

from math import pi, prod

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers.networks import randomised
from helpers.written_out import Weights, heads, joined, on_map, to_map, to_tokens
from mmlisa import ops
from mmlisa.models.attention import build_attention
from mmlisa.models.backbones import CastlingDeiT, CastlingLeViT, CastlingMViTv2, ESNet, LiSANet


@pytest.fixture(autouse=True)
def in_double_precision():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def mlp(w: Weights, x: Tensor, grid: tuple[int, int]) -> Tensor:
    x = (w / "fc1").linear(x)
    if w["dwconv.weight"] is not None:
        x = on_map(w / "dwconv", x, grid)
    return (w / "fc2").linear(F.gelu(x))


def check(model: nn.Module, image: Tensor, expected: list[Tensor]) -> None:
    with torch.no_grad():
        for found, wanted in zip(model(image), expected, strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-8)


# --- LiSANet ---


def lisa(w: Weights, x: Tensor, grid: tuple[int, int], num_heads: int) -> Tensor:
    query, key, value = (heads(t, num_heads).mT.unflatten(3, grid) for t in (w / "qkv").linear(x).chunk(3, dim=2))
    query, key = (t / t.norm(dim=2, keepdim=True) for t in (query, key))
    kernels = (w[name] for name in ("kernel_a", "kernel_b", "bias", "bias_a"))
    y = joined(ops.lisa(query, key, value, *kernels, backend="reference").flatten(3).mT)
    if w["norm.weight"] is not None:
        y = (w / "norm").layer_norm(y, 1e-5)
    return (w / "proj").linear(y)


def separable(w: Weights, x: Tensor, grid: tuple[int, int]) -> Tensor:
    return (w / "pwconv2").linear(on_map(w / "dwconv", F.gelu((w / "pwconv1").linear(x)), grid))


def lisanet(w: Weights, image: Tensor, arch: dict) -> list[Tensor]:
    maps, x = [], image
    for i, stride in enumerate(arch["strides"]):
        embed = w / f"stages.{i}.downsample" if i else w / "stem"
        kernel, padding = (2 * stride - 1, stride - 1) if arch["overlap"] else (stride, 0)
        assert embed["proj.weight"].shape[-2:] == (kernel, kernel)
        x = F.conv2d(x, embed["proj.weight"], embed["proj.bias"], stride, padding)
        grid, x = x.shape[2:], to_tokens(x)
        x = (embed / "norm").layer_norm(x)
        if embed["position_embedding"] is not None:
            x = x + to_tokens(embed["position_embedding"])
        for j in range(arch["depths"][i]):
            block = w / f"stages.{i}.blocks.{j}"
            if arch["position"] == "conv":
                x = x + on_map(block / "position.dwconv", x, grid)
            y, attn = (block / "norm1").layer_norm(x), block / "attn"
            is_lisa = arch["mixers"][i] == "A"
            x = x + (lisa(attn, y, grid, arch["num_heads"][i]) if is_lisa else separable(attn, y, grid))
            x = x + mlp(block / "mlp", (block / "norm2").layer_norm(x), grid)
            if arch["position"] == "stage" and j == 0:
                x = x + on_map(block / "position.dwconv", x, grid)
        maps.append(to_map((w / f"norm{i}").layer_norm(x), grid))
        x = to_map(x, grid)
    return maps


NARROW = dict(depths=(1, 2, 1, 1), channels=(8, 12, 16, 16), num_heads=(2, 3, 2, 1))


@pytest.mark.parametrize(
    "arch",
    [
        dict(base="hybrid-small", **NARROW),
        dict(base="small", **NARROW),
        dict(base="small", position="conv", **NARROW),
        dict(base="v1-tiny", **NARROW),
        dict(base="v1-base", **NARROW),
        dict(base="isotropic", depths=(2,), channels=(12,), num_heads=(3,)),
    ],
    ids=lambda arch: f"{arch['base']}-{arch.get('position', '')}",
)
def test_lisanet(arch):
    model = randomised(LiSANet(arch, image_size=(64, 96)))
    resolved = LiSANet.resolve_arch(arch)
    if resolved["mixers"][0] == "C":
        assert model.stages[0].blocks[0].attn.dwconv.weight.shape == (16, 1, 7, 7)
    state = model.state_dict()
    assert any(".mlp.dwconv." in name for name in state) == resolved["conv_mlp"]
    assert any(name.endswith("bias_a") for name in state) == arch["base"].startswith("v1")
    image = torch.randn(2, 3, 64, 96)
    check(model, image, lisanet(Weights(state), image, resolved))


# --- ESNet ---


def unit(w: Weights, x: Tensor, stride: int = 1, act: bool = True) -> Tensor:
    x = (w / 1).batch_norm((w / 0).conv(x, stride))
    return F.hardswish(x) if act else x


def squeeze_excite(w: Weights, x: Tensor) -> Tensor:
    hidden = (w / "conv_reduce").conv(x.mean((2, 3), keepdim=True)).relu()
    return x * ((w / "conv_expand").conv(hidden) / 6 + 0.5).clamp(0, 1)


def shrinking(w: Weights, x: Tensor) -> Tensor:
    """Two branches side by side; a depthwise separable convolution over both."""
    first = unit(w / "branch1.1", unit(w / "branch1.0", x, 2, act=False))
    second = unit(w / "branch2.1", unit(w / "branch2.0", x), 2, act=False)
    second = unit(w / "branch2.3", squeeze_excite(w / "branch2.2", second))
    return unit(w / "merge.1", unit(w / "merge.0", torch.cat([first, second], dim=1)))


def keeping(w: Weights, x: Tensor) -> Tensor:
    """The first half passes by; channel by channel in turns with what the second one becomes."""
    first, second = x.chunk(2, dim=1)
    y = unit(w / "pointwise", second)
    y = squeeze_excite(w / "se", torch.cat([y, unit(w / "depthwise", y, act=False)], dim=1))
    y = unit(w / "linear", y)
    out = torch.empty_like(x)
    out[:, 0::2], out[:, 1::2] = first, y
    return out


def esnet(w: Weights, image: Tensor, depths: tuple[int, ...]) -> list[Tensor]:
    x = F.max_pool2d(unit(w / "stem.0", image, 2), 3, 2, padding=1)
    maps = []
    for i, depth in enumerate(depths):
        for j in range(depth):
            x = (keeping if j else shrinking)(w / f"stages.{i}.downsample.{j}", x)
        maps.append(x)
    return maps


def test_esnet():
    model = randomised(ESNet(dict(base="x1.0", scale=0.25)))
    image = torch.randn(1, 3, 64, 96)
    check(model, image, esnet(Weights(model.state_dict()), image, (3, 7, 3)))


# --- Castling-ViT ---


def pooled(w: Weights, x: Tensor, grid: tuple[int, int], stride: int = 1, eps: float = 1e-5) -> Tensor:
    """MViTv2's, for each head by itself: ``[B, h, N, d]``."""
    tokens = torch.stack([to_tokens((w / "conv").conv(to_map(head, grid), stride)) for head in x.unbind(1)], dim=1)
    return (w / "norm").layer_norm(tokens, eps)


def linear_angular(
    w: Weights, x: Tensor, grid: tuple[int, int], num_heads: int, residual: bool | None = None
) -> Tensor:
    """Eqs. 9 and 10; where there is a pooling, or by choice, MViTv2's residual one, which skips the class token."""
    query, key, value = (heads(t, num_heads) for t in (w / "qkv").linear(x).chunk(3, dim=2))
    if w["pool.0.conv.weight"] is not None:
        residual = True
        query, key, value = (pooled(w / f"pool.{i}", t, grid) for i, t in enumerate((query, key, value)))
    similarity = torch.einsum("bhnd,bhmd->bhnm", *(t / t.norm(dim=-1, keepdim=True) for t in (query, key)))
    y = value / 2 + similarity @ value / pi
    y = y / y.norm(dim=-1, keepdim=True)
    if w["dconv.weight"] is not None:  # along the flattened tokens, a kernel per head
        size, channels = w["dconv.weight"].shape[2], value.shape[3]
        kernel = w["dconv.weight"].flatten(1)[:, None].repeat_interleave(channels, dim=0)
        rows = value.transpose(2, 3).flatten(1, 2)
        local = F.conv1d(rows, kernel, padding=size // 2, groups=rows.shape[1])
        y = y + local.unflatten(1, (num_heads, channels)).transpose(2, 3)
    if residual:
        y[:, :, -prod(grid) :] += query[:, :, -prod(grid) :]
    return (w / "proj").linear(joined(y))


@pytest.mark.parametrize(
    "options",
    [dict(), dict(conv_size=5), dict(conv_size=None), dict(pooled=True), dict(residual=True), dict(head_dims=6)],
)
def test_linear_angular_attention(options):
    operator = randomised(build_attention(dict(type="LinearAngularAttention", aux=True, **options), 24, 3, (5, 7)))
    x = torch.randn(2, 35, 24)
    expected = linear_angular(Weights(operator.state_dict()), x, (5, 7), 3, options.get("residual"))
    torch.testing.assert_close(operator(x, (5, 7)), expected, rtol=1e-8, atol=1e-8)


def plain_vit(w: Weights, image: Tensor, depth: int, num_heads: int, patch: int) -> Tensor:
    x = F.conv2d(image, w["stem.proj.weight"], w["stem.proj.bias"], patch)
    grid, x = x.shape[2:], to_tokens(x)
    x = torch.cat([w["stem.cls_token"].expand(len(x), -1, -1), x], dim=1) + w["stem.position"]
    for i in range(depth):
        block = w / f"stages.{i}.blocks.0"
        x = x + linear_angular(block / "attn", (block / "norm1").layer_norm(x), grid, num_heads, residual=True)
        x = x + mlp(block / "mlp", (block / "norm2").layer_norm(x), grid)
    return (w / "norm").layer_norm(x)


@pytest.mark.parametrize("patch", [16, 8])
def test_castling_deit(patch):
    arch = dict(base="tiny", depth=2, channels=24, num_heads=3, patch_size=patch)
    image = torch.randn(2, 3, 64, 96)
    model = randomised(CastlingDeiT(arch, image_size=(64, 96)))
    assert model.stages[0].blocks[0].mlp.dwconv.weight.shape == (96, 1, 5, 5)
    assert model.stages[0].blocks[0].attn.dconv.weight.shape == (3, 1, 9, 1)
    x = plain_vit(Weights(model.state_dict()), image, 2, 3, patch)
    check(model, image, [to_map(x[:, 1:], (64 // patch, 96 // patch))])
    tokens = CastlingDeiT(arch, image_size=(64, 96), out_type="cls_token").eval()
    tokens.load_state_dict(model.state_dict())
    check(tokens, image, [x[:, 0]])


def levit_mlp(w: Weights, x: Tensor, grid: tuple[int, int]) -> Tensor:
    x = (w / "ln1").linear_norm(x)
    if w["conv.weight"] is not None:
        x = (w / "conv_norm").token_norm(on_map(w / "conv", x, grid))
    return (w / "ln2").linear_norm(F.hardswish(x))


def shrinking_attention(w: Weights, x: Tensor, grid: tuple[int, int], num_heads: int) -> Tensor:
    """Pooled queries, added to the output; the input skips it, projected and max-pooled (Castling-ViT, Table 1)."""
    qkv = [heads(t, num_heads) for t in (w / "qkv").linear_norm(x).chunk(3, dim=2)]
    query, key, value = (pooled(w / f"pool.{i}", t, grid, 1 if i else 2) for i, t in enumerate(qkv))
    weights = (torch.einsum("bhnd,bhmd->bhnm", query, key) / query.shape[3] ** 0.5).softmax(-1)
    y = (w / "proj").linear_norm(joined(query + weights @ value))
    skip = F.max_pool2d(to_map((w / "skip").linear_norm(x), grid), 3, 2, padding=1)
    return to_tokens(skip) + y


def levit(w: Weights, image: Tensor, arch: dict) -> list[Tensor]:
    x = image
    for i in range(4):
        layer = w / f"stem.{2 * i}"
        x = (layer / "bn").batch_norm((layer / "linear").conv(x, 2))
        x = x if i == 3 else F.hardswish(x)
    maps, grid, x = [], x.shape[2:], to_tokens(x)
    for i, depth in enumerate(arch["depths"]):
        stage = w / f"stages.{i}"
        if i:
            num_heads = arch["channels"][i - 1] // arch["head_dims"]
            x = shrinking_attention(stage / "downsample.attn", x, grid, num_heads)
            grid = tuple(-(-n // 2) for n in grid)
            x = x + levit_mlp(stage / "downsample.mlp", x, grid)
        for j in range(depth):
            block = stage / f"blocks.{j}"
            y = linear_angular(block / "attn", x, grid, arch["num_heads"][i])
            x = x + (block / "norm").token_norm(y)
            x = x + levit_mlp(block / "mlp", x, grid)
        maps.append(to_map(x, grid))
    return maps


def test_castling_levit():
    arch = dict(base="128", depths=(1, 2, 1), channels=(32, 48, 64), num_heads=(1, 2, 2))
    model = randomised(CastlingLeViT(arch, image_size=(96, 128)))
    image = torch.randn(2, 3, 96, 128)
    check(model, image, levit(Weights(model.state_dict()), image, CastlingLeViT.resolve_arch(arch)))


def test_stride_1_blocks_of_castling_mvitv2():
    model = randomised(CastlingMViTv2(dict(base="tiny", channels=16, depths=(2, 1)), image_size=64))
    block, x = Weights(model.state_dict()) / "stages.0.blocks.1", torch.randn(2, 256, 16)
    y = x + linear_angular(block / "attn", (block / "norm1").layer_norm(x), (16, 16), 1, residual=True)
    y = y + mlp(block / "mlp", (block / "norm2").layer_norm(y), (16, 16))
    torch.testing.assert_close(model.stages[0].blocks[1](x, (16, 16)), y, rtol=1e-8, atol=1e-8)
