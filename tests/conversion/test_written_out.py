"""The networks of ViT³ and PolaFormer, written out as functions of a file in their authors' names.

First H-ViT³-T has to agree with the outputs of the authors' network; then another size, other images and the networks without
such outputs are checked against the forms.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from helpers.golden_weights import dense_names, image, outputs, state_dict, values
from helpers.written_out import Weights, heads, joined, on_map, to_map, to_tokens, turned
from mmlisa import create_model

Grid = tuple[int, int]
Shapes = dict[str, list[int]]

# Depths and heads.
H_VIT3_T = (1, 3, 9, 4), (2, 4, 10, 16)
POLA_PVT_T = (2, 2, 2, 2), (1, 2, 5, 8)


# --- names and shapes ---


def layer(name: str, *shape: int, bias: bool = True) -> Shapes:
    return {f"{name}.weight": [*shape]} | ({f"{name}.bias": [shape[0]]} if bias else {})


def mlp_shapes(name: str, channels: int, ratio: int = 4) -> Shapes:
    return layer(f"{name}.fc1", ratio * channels, channels) | layer(f"{name}.fc2", channels, ratio * channels)


def norms(name: str, channels: int) -> Shapes:
    return layer(f"{name}.norm1", channels) | layer(f"{name}.norm2", channels)


def ttt_shapes(name: str, channels: int, num_heads: int) -> Shapes:
    d = channels // num_heads
    weights = {f"{name}.w1": [1, num_heads, d, d], f"{name}.w2": [1, num_heads, d, d], f"{name}.w3": [d, 1, 3, 3]}
    return weights | layer(f"{name}.qkv", 3 * (channels + d), channels) | layer(f"{name}.proj", channels, channels + d)


def vit3_shapes() -> Shapes:
    shapes = layer("patch_embed.proj", 192, 3, 16, 16)
    for j in range(12):
        block = f"blocks.{j}"
        shapes |= layer(f"{block}.cpe", 192, 1, 3, 3) | norms(block, 192) | mlp_shapes(f"{block}.mlp", 192)
        shapes |= ttt_shapes(f"{block}.attn", 192, 6)
    shapes |= layer("norm", 192) | layer("head", 1000, 192)
    assert len(shapes) == 210
    return shapes


def pola_pvt_shapes() -> Shapes:
    widths, ratios, (depths, num_heads), shapes = (64, 128, 320, 512), (8, 8, 4, 4), POLA_PVT_T, {}
    for i, channels in enumerate(widths):
        side, patch = 56 >> i, 2 if i else 4
        shapes |= layer(f"patch_embed{i + 1}.proj", channels, widths[i - 1] if i else 3, patch, patch)
        shapes |= layer(f"patch_embed{i + 1}.norm", channels) | {f"pos_embed{i + 1}": [1, side**2, channels]}
        for j in range(depths[i]):
            block = f"block{i + 1}.{j}"
            shapes |= norms(block, channels) | mlp_shapes(f"{block}.mlp", channels, ratios[i])
            shapes |= layer(f"{block}.attn.qg", 2 * channels, channels)
            shapes |= layer(f"{block}.attn.kv", 2 * channels, channels)
            shapes |= layer(f"{block}.attn.proj", channels, channels)
            d = channels // num_heads[i]
            shapes |= layer(f"{block}.attn.dwc", d, 1, 5, 5)
            shapes[f"{block}.attn.power"] = [1, num_heads[i], 1, d]
            shapes[f"{block}.attn.scale"] = [1, 1, channels]
            shapes[f"{block}.attn.positional_encoding"] = [1, side**2, channels]
    shapes |= layer("norm", widths[3]) | layer("head", 1000, widths[3])
    assert len(shapes) == 176
    return shapes


def filled(shapes: Shapes) -> dict[str, Tensor]:
    return {name: torch.as_tensor(values(name, shape), dtype=torch.float32) for name, shape in shapes.items()}


# --- layers ---


def unit(w: Weights, x: Tensor, stride: int = 1) -> Tensor:
    return (w / "norm").batch_norm((w / "conv").conv(x, stride))


def stem(w: Weights, picture: Tensor) -> Tensor:
    """Normalised pictures of any size, with zeros on the right and below up to a multiple of 4."""
    x = F.pad(picture, (0, -picture.shape[3] % 4, 0, -picture.shape[2] % 4))
    for i, stride in enumerate((2, 1, 1, 2, 1)):
        x = unit(w / f"conv.{i}", x.relu() if i else x, stride)
    return x


def merged(w: Weights, x: Tensor) -> Tensor:
    """An odd side gets zeros before the first convolution."""
    x = F.pad(x, (0, x.shape[3] % 2, 0, x.shape[2] % 2))
    x = (w / "conv.0.conv").conv(x).relu()
    return unit(w / "conv.2", (w / "conv.1.conv").conv(x, 2).relu())


def ttt(w: Weights, x: Tensor, grid: Grid, num_heads: int, rotates: bool) -> Tensor:
    """For one image: both inner models take one step of gradient descent."""
    channels, n = x.shape[2], x.shape[1]
    d = channels // num_heads
    q, k, v, *small = (w / "qkv").linear(x).split([channels] * 3 + [d] * 3, dim=2)
    if rotates:
        q, k = turned(q, grid), turned(k, grid)
    q, k, v = (heads(t, num_heads)[0] for t in (q, k, v))
    q2, k2, v2 = (to_map(t, grid) for t in small)
    w1, w2, w3 = (w[name].clone().requires_grad_() for name in ("w1", "w2", "w3"))
    with torch.enable_grad():
        products = ((k @ w1[0]) * F.silu(k @ w2[0]) * v).sum() + (F.conv2d(k2, w3, padding=1, groups=d) * v2).sum()
        gradients = torch.autograd.grad(-products / (3 * n), (w1, w2, w3))
    w1, w2, w3 = (
        (old - g / (g.square().sum(axes, keepdim=True).sqrt() + 1)).detach()
        for old, g, axes in zip((w1, w2, w3), gradients, (2, 2, (2, 3)), strict=True)
    )
    y1 = joined(((q @ w1[0]) * F.silu(q @ w2[0]))[None])
    y2 = to_tokens(F.conv2d(q2, w3, padding=1, groups=d))
    return (w / "proj").linear(torch.cat([y1, y2], dim=2))


def vit3_block(w: Weights, x: Tensor, grid: Grid, num_heads: int, eps: float) -> Tensor:
    """With a convolution in the MLP, rotations and an epsilon of 1e-5 in the pyramids."""
    x = x + on_map(w / "cpe", x, grid)
    x = x + ttt(w / "attn", (w / "norm1").layer_norm(x, eps), grid, num_heads, rotates=eps == 1e-5)
    hidden = F.gelu((w / "mlp.fc1").linear((w / "norm2").layer_norm(x, eps)))
    if w["mlp.dwc.weight"] is not None:
        hidden = F.gelu(hidden + on_map(w / "mlp.dwc", hidden, grid))
    return x + (w / "mlp.fc2").linear(hidden)


def pola_block(w: Weights, x: Tensor, grid: Grid, num_heads: int) -> Tensor:
    attn, n = w / "attn", x.shape[1]
    u = (w / "norm1").layer_norm(x, 1e-6)
    q, gate = (attn / "qg").linear(u).chunk(2, dim=2)
    k, v = (attn / "kv").linear(u).chunk(2, dim=2)
    scale = (1 + attn["scale"].exp()).log()
    q, k = (heads(t / scale, num_heads) for t in (q, k + attn["positional_encoding"]))
    power = 1 + 4 / (1 + (-attn["power"]).exp())
    (q_plus, q_minus), (k_plus, k_minus) = (tuple((s * t).relu() ** power for s in (1, -1)) for t in (q, k))
    halves = heads(v, num_heads).chunk(2, dim=3)
    same = q_plus @ k_plus.mT + q_minus @ k_minus.mT
    opposite = q_plus @ k_minus.mT + q_minus @ k_plus.mT
    parts = [t @ half / (t.sum(3, keepdim=True) + n * 1e-6) for t, half in zip((same, opposite), halves, strict=True)]
    one_head = attn / "dwc"
    local = torch.cat([on_map(one_head, t, grid) for t in v.chunk(num_heads, dim=2)], dim=2)
    x = x + (attn / "proj").linear((joined(torch.cat(parts, dim=3)) + local) * gate)
    hidden = F.gelu((w / "mlp.fc1").linear((w / "norm2").layer_norm(x, 1e-6)))
    return x + (w / "mlp.fc2").linear(hidden)


# --- networks ---


def pyramid(w: Weights, picture: Tensor) -> list[Tensor]:
    """The tokens of the four stages as maps, without norms."""
    depths, num_heads = H_VIT3_T
    maps, x = [], stem(w / "patch_embed", picture)
    for i, depth in enumerate(depths):
        grid, x = tuple(x.shape[2:]), to_tokens(x)
        for j in range(depth):
            x = vit3_block(w / f"layers.{i}.blocks.{j}", x, grid, num_heads[i], 1e-5)
        maps.append(to_map(x, grid))
        x = merged(w / f"layers.{i}.downsample", maps[-1]) if i < 3 else None
    return maps


def normed_maps(w: Weights, picture: Tensor) -> list[Tensor]:
    maps = pyramid(w, picture)
    return [to_map((w / f"norm{i}").layer_norm(to_tokens(m), 1e-5), m.shape[2:]) for i, m in enumerate(maps)]


def logits(name: str, w: Weights, picture: Tensor) -> Tensor:
    if name == "vit3_t":
        x = F.conv2d(picture, w["patch_embed.proj.weight"], w["patch_embed.proj.bias"], 16)
        grid, x = tuple(x.shape[2:]), to_tokens(x)
        for j in range(12):
            x = vit3_block(w / f"blocks.{j}", x, grid, 6, 1e-6)
        x = (w / "norm").layer_norm(x)
    elif name == "pola_pvt_t":
        (depths, num_heads), x = POLA_PVT_T, picture
        for i, depth in enumerate(depths):
            embed = w / f"patch_embed{i + 1}"
            x = F.conv2d(x, embed["proj.weight"], embed["proj.bias"], 2 if i else 4)
            grid, x = tuple(x.shape[2:]), to_tokens(x)
            x = (embed / "norm").layer_norm(x, 1e-5) + w[f"pos_embed{i + 1}"]
            for j in range(depth):
                x = pola_block(w / f"block{i + 1}.{j}", x, grid, num_heads[i])
            x = to_map(x, grid)
        x = to_tokens(x)  # the file's last norm is never applied
    else:
        x = to_tokens(pyramid(w, picture)[3])
        x = (w / "norm").token_norm(x)
    return (w / "head").linear(x.mean(1))


def double(state: dict[str, Tensor]) -> Weights:
    return Weights({name: tensor.double() for name, tensor in state.items()})


def assert_near(actual: Tensor, expected: Tensor, tolerance: float) -> None:
    assert actual.shape == expected.shape
    assert (actual.double() - expected.double()).abs().max() < tolerance * expected.abs().max()


def test_the_form_is_the_authors():
    """The logits of the authors' network, in fp64."""
    with torch.no_grad():
        found = logits("h_vit3_t", double(state_dict("h_vittt_t")), image(224, 224).double())
    assert_near(found, torch.from_numpy(outputs("h_vittt_t")["logits"]).view(1, -1), 2e-6)


@pytest.mark.parametrize(("name", "shapes"), [("vit3_t", vit3_shapes), ("pola_pvt_t", pola_pvt_shapes)])
def test_classifiers_equal_the_forms(name, shapes, tmp_path):
    state = filled(shapes())
    torch.save({"model": state, "epoch": 299}, tmp_path / "theirs.pth")
    model = create_model(name, pretrained=str(tmp_path / "theirs.pth")).eval()
    picture = image(224, 224)
    with torch.no_grad():
        expected = logits(name, double(state), picture.double())
        assert_near(model(picture), expected, 1e-5)
    assert expected.abs().max() > 1


@pytest.mark.parametrize("size", [(256, 320), (250, 333)])
def test_maps_of_h_vit3_equal_the_forms(size, tmp_path):
    """Also where the image is not a multiple of 4, and the maps of three stages have odd sides."""
    state = dense_names("h_vittt_t")
    torch.save({"meta": {}, "state_dict": {f"backbone.{key}": t for key, t in state.items()}}, tmp_path / "theirs.pth")
    model = create_model("h_vit3_t", features_only=True, pretrained=str(tmp_path / "theirs.pth")).eval()
    picture = image(*size)
    with torch.no_grad():
        maps, expected = model(picture), normed_maps(double(state), picture.double())
    for one, wanted in zip(maps, expected, strict=True):
        assert_near(one, wanted, 2e-5)
