"""FLatten's hosts: with their own attention they are the libraries' hosts; the operator and its windows by definition."""

import re

import pytest
import timm
import torch
import torch.nn.functional as F
from torch import nn

from mmlisa.models.attention import build_attention
from mmlisa.models.backbones import FLattenDeiT, FLattenPVT, FLattenPVTv2, FLattenSwin

NARROW = dict(channels=(16, 32, 64, 128), num_heads=(1, 2, 4, 8), depths=(2, 2, 2, 2))


def randomise(module: nn.Module) -> nn.Module:
    """Every parameter at random: zeros and ones of an initialisation hide mistakes."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return module


def load_renamed(ours: nn.Module, theirs: dict[str, torch.Tensor], rules: list[tuple[str, str]], ignore: str) -> None:
    """Moves all of ``theirs`` into ``ours``: parameter for parameter, nothing left over on either side."""
    state = {}
    for name, tensor in theirs.items():
        if re.search(ignore, name):
            continue
        for pattern, replacement in rules:
            name = re.sub(pattern, replacement, name)
        state[name] = tensor
    ours.load_state_dict(state)


def test_swin_with_its_own_attention_is_timms():
    theirs = timm.create_model(
        "swin_tiny_patch4_window7_224", embed_dim=16, depths=(2, 2, 2, 2), num_heads=(1, 2, 4, 8)
    )
    theirs = randomise(theirs).double().eval()
    ours = FLattenSwin(dict(base="tiny", **NARROW), attn_type="SSSS", out_indices=(3,)).double().eval()
    rules = [
        (r"^patch_embed", "stem"),
        (r"^layers\.", "stages."),
        (r"^norm\.", "norm3."),
    ]
    load_renamed(ours, theirs.state_dict(), rules, r"^head|relative_position_index|attn_mask")
    image = torch.randn(2, 3, 224, 224, dtype=torch.float64)
    with torch.no_grad():
        expected = theirs.forward_features(image).permute(0, 3, 1, 2)
        torch.testing.assert_close(ours(image)[0], expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("size", [(256, 256), (227, 301)])
def test_swin_with_its_own_attention_is_mmdets(size):
    """At any size whose maps are larger than a window: below that mmdet shifts its windows anyway, Swin does not."""
    mmdet_swin = pytest.importorskip("mmdet.models.backbones.swin")
    theirs = mmdet_swin.SwinTransformer(embed_dims=16, depths=(2, 2, 2, 2), num_heads=(1, 2, 4, 8), drop_path_rate=0.0)
    randomise(theirs).double().eval()  # returns None
    ours = FLattenSwin(dict(base="tiny", **NARROW), attn_type="SSSS").double().eval()
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())
    rules = [
        (r"^patch_embed\.projection", "stem.proj"),
        (r"^patch_embed\.norm", "stem.norm"),
        (r"^stages\.2\.downsample", "stages.3.downsample"),
        (r"^stages\.1\.downsample", "stages.2.downsample"),
        (r"^stages\.0\.downsample", "stages.1.downsample"),
        (r"attn\.w_msa", "attn"),
        (r"ffn\.layers\.0\.0", "mlp.fc1"),
        (r"ffn\.layers\.1", "mlp.fc2"),
    ]
    state = theirs.state_dict()
    # mmcv unfolds 2x2 neighbours channel by channel, Swin places them side by side.
    for name in [name for name in state if ".downsample." in name]:
        tensor = state[name]
        columns = tensor.view(*tensor.shape[:-1], -1, 4).transpose(-1, -2)
        state[name] = columns[..., [0, 2, 1, 3], :].flatten(-2)
    load_renamed(ours, state, rules, "relative_position_index")
    image = torch.randn(1, 3, *size, dtype=torch.float64)
    with torch.no_grad():
        ours_maps, their_maps = ours(image), theirs(image)
    for i, (a, b) in enumerate(zip(ours_maps, their_maps, strict=True)):
        if min(a.shape[2:]) > 7:
            torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8, msg=f"stage {i}")


@pytest.mark.parametrize("size", [(64, 64), (128, 96)])
def test_pvtv2_with_its_own_attention_is_timms(size):
    theirs = timm.create_model("pvt_v2_b0", embed_dims=(16, 32, 64, 128), num_heads=(1, 2, 4, 8))
    theirs = randomise(theirs).double().eval()
    ours = FLattenPVTv2(dict(base="b0", **NARROW), attn_type="SSSS").double().eval()
    load_renamed(ours, theirs.state_dict(), [("^patch_embed", "stem")], r"^head")
    image = torch.randn(2, 3, *size, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(ours(image)[3], theirs.forward_features(image), rtol=1e-8, atol=1e-8)


def test_pvt_with_its_own_attention_is_mmdets():
    """At the pretraining size; for others mmdet interpolates the positions linearly."""
    theirs = pytest.importorskip("mmdet.models.backbones.pvt").PyramidVisionTransformer(
        pretrain_img_size=64, embed_dims=16, num_layers=[2, 2, 2, 2], num_heads=[1, 2, 4, 8], drop_path_rate=0.0
    )
    randomise(theirs).double().eval()
    for name, module in theirs.named_modules():
        if isinstance(module, nn.LayerNorm) and (
            name.endswith("attn.norm") or re.search(r"^layers\.\d\.0\.norm", name)
        ):
            module.eps = 1e-5  # PVT's own code has 1e-6 in the blocks alone
    ours = FLattenPVT(dict(base="tiny", **NARROW), attn_type="SSSS", image_size=64).double().eval()
    state = {"norm.weight": ours.norm.weight, "norm.bias": ours.norm.bias}  # which is never applied
    for name, tensor in theirs.state_dict().items():
        if name.endswith(("in_proj_weight", "in_proj_bias")):
            for part, values in zip(("q", "kv"), tensor.split([len(tensor) // 3, len(tensor) // 3 * 2]), strict=True):
                state[name.replace("in_proj_", f"{part}.")] = values
        else:
            state[name] = tensor.flatten(1) if ".ffn." in name and tensor.ndim == 4 else tensor
    rules = [
        (r"^layers\.0\.0\.projection", "stem.proj"),
        (r"^layers\.0\.0\.", "stem."),
        (r"^layers\.0\.1\.0\.pos_embed", "stem.position"),
        (r"^layers\.(\d)\.0\.projection", r"stages.\1.downsample.proj"),
        (r"^layers\.(\d)\.0\.", r"stages.\1.downsample."),
        (r"^layers\.(\d)\.1\.0\.pos_embed", r"stages.\1.downsample.position"),
        (r"^layers\.(\d)\.1\.1\.", r"stages.\1.blocks.0."),
        (r"^layers\.(\d)\.1\.2\.", r"stages.\1.blocks.1."),
        (r"attn\.attn\.out_proj", "attn.proj"),
        (r"attn\.attn\.", "attn."),
        (r"ffn\.layers\.0", "mlp.fc1"),
        (r"ffn\.layers\.3", "mlp.fc2"),
    ]
    load_renamed(ours, state, rules, r"^$")
    image = torch.randn(2, 3, 64, 64, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(list(ours(image)), theirs(image), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("out_type", ["cls_token", "featmap"])
def test_deit_with_its_own_attention_is_timms(out_type):
    theirs = timm.create_model("deit_tiny_patch16_224", img_size=64, embed_dim=32, depth=2, num_heads=2)
    theirs = randomise(theirs).double().eval()
    arch = dict(base="tiny", channels=32, depth=2, num_heads=2, attention=dict(type="SoftmaxAttention"))
    ours = FLattenDeiT(arch, image_size=64, out_type=out_type).double().eval()
    rules = [
        (r"^patch_embed", "stem"),
        ("^cls_token", "stem.cls_token"),
        ("^pos_embed", "stem.position"),
        (r"^blocks\.(\d)", r"stages.\1.blocks.0"),
    ]
    load_renamed(ours, theirs.state_dict(), rules, r"^head")
    image = torch.randn(2, 3, 64, 64, dtype=torch.float64)
    with torch.no_grad():
        tokens = theirs.forward_features(image)
        expected = tokens[:, 0] if out_type == "cls_token" else tokens[:, 1:].mT.unflatten(2, (4, 4))
        torch.testing.assert_close(ours(image)[0], expected, rtol=1e-8, atol=1e-8)


def focused(x, operator, grid, prefix=0):
    """Section 4 of the paper from the operator's parameters, one head at a time, on a rectangular grid."""
    channels, heads = x.shape[2], operator.num_heads
    q, k, v = operator.qkv(x).split(channels, -1)
    position = operator.positional_encoding.mT.unflatten(2, operator.resize.grid)
    if grid != operator.resize.grid:
        position = F.interpolate(position, grid, mode="bicubic")
    k = torch.cat([k[:, :prefix], k[:, prefix:] + position.flatten(2).mT], 1)
    features = []
    for t in (q, k):
        t = (t.relu() + 1e-6) / F.softplus(operator.scale)
        cube = t**operator.focusing_factor
        features.append(cube / cube.norm(dim=-1, keepdim=True) * t.norm(dim=-1, keepdim=True))
    outputs = []
    for qh, kh, vh in zip(*(t.chunk(heads, -1) for t in (*features, v)), strict=True):
        attention = qh @ kh.mT / (qh @ kh.mean(1)[..., None] + 1e-6) / x.shape[1]
        local = F.conv2d(
            vh[:, prefix:].mT.unflatten(2, grid), operator.dwc.weight, operator.dwc.bias, padding=2, groups=vh.shape[2]
        )
        outputs.append(attention @ vh + F.pad(local.flatten(2).mT, (0, 0, prefix, 0)))
    return operator.proj(torch.cat(outputs, -1))


@pytest.mark.parametrize("grid", [(6, 7), (9, 5)])
@pytest.mark.parametrize("prefix", [0, 1])
def test_operator_by_its_formulas(grid, prefix):
    operator = randomise(build_attention(dict(type="FocusedLinearAttention"), 24, 3, (6, 7))).double()
    x = torch.randn(2, grid[0] * grid[1] + prefix, 24, dtype=torch.float64)
    torch.testing.assert_close(operator(x, grid), focused(x, operator, grid, prefix))
    with torch.no_grad():  # the positions are kept now
        torch.testing.assert_close(operator.eval()(x, grid), operator(x, grid))


def test_windows_are_maps_of_their_own():
    """Each window gives what the operator gives on that window alone; at the border, on the part that is of the map."""
    whole = randomise(build_attention(dict(type="FocusedLinearAttention", position=False), 16, 2, (4, 4))).double()
    windowed = build_attention(dict(type="FocusedLinearAttention", position=False, window=4), 16, 2, (8, 8)).double()
    windowed.load_state_dict(whole.state_dict())
    x = torch.randn(2, 6, 9, 16, dtype=torch.float64)
    y = windowed(x.flatten(1, 2), (6, 9)).unflatten(1, (6, 9))
    for top in (0, 4):
        for left in (0, 4, 8):
            part = x[:, top : top + 4, left : left + 4]
            grid = tuple(part.shape[1:3])
            expected = whole(part.flatten(1, 2), grid).unflatten(1, grid)
            torch.testing.assert_close(y[:, top : top + 4, left : left + 4], expected)


def test_shifted_windows_are_rolled_there_and_back():
    cfg = dict(type="FocusedLinearAttention", window=4)
    plain = randomise(build_attention(cfg, 16, 2, (8, 8))).double()
    shifted = build_attention(dict(cfg, shift=True), 16, 2, (8, 8)).double()
    shifted.load_state_dict(plain.state_dict())
    for grid, shift in (((8, 12), 2), ((6, 9), 2), ((4, 12), 0)):
        x = torch.randn(2, *grid, 16, dtype=torch.double)
        rolled = plain(x.roll((-shift, -shift), (1, 2)).flatten(1, 2), grid).unflatten(1, grid)
        expected = rolled.roll((shift, shift), (1, 2)).flatten(1, 2)
        torch.testing.assert_close(shifted(x.flatten(1, 2), grid), expected)


def test_every_second_block_shifts_its_windows():
    arch = dict(base="tiny", **{**NARROW, "depths": (3, 2, 2, 2)})
    for options, expected in ((dict(window=7, shift=True), [False, True, False]), (dict(window=7), [False] * 3)):
        model = FLattenSwin(arch, attention=options)
        assert [block.attn.shift for block in model.stages[0].blocks] == expected
    with pytest.raises(ValueError, match="shift=True"):
        FLattenSwin(arch, attention=dict(shift=True))


def test_cross_shaped_windows_by_definition():
    """Stripes of one branch see their own stripe only; stage 4 and a grid within the split are global."""
    operator = randomise(build_attention(dict(type="CrossShapedWindowAttention", split_size=2), 16, 4, (8, 8))).double()
    x = torch.randn(1, 64, 16, dtype=torch.float64)
    operator.proj = nn.Identity()
    changed = x.clone().unflatten(1, (8, 8))
    changed[:, 5, 6] += 1
    moved = (operator(x, (8, 8)) - operator(changed.flatten(1, 2), (8, 8))).abs().unflatten(1, (8, 8))[0]
    vertical, horizontal = moved[..., :8].amax(-1) > 1e-12, moved[..., 8:].amax(-1) > 1e-12
    assert vertical.nonzero()[:, 1].unique().tolist() == [6, 7]
    assert horizontal.nonzero()[:, 0].unique().tolist() == [4, 5]
    assert vertical[:, 6:].all()
    assert horizontal[4:6].all()
    # One side within a stripe makes the attention global: a stripe along the other side would be the whole map.
    for grid, branches in {(7, 7): 1, (7, 12): 1, (12, 7): 1, (8, 12): 2, (12, 8): 2}.items():
        operator = build_attention(dict(type="CrossShapedWindowAttention", split_size=7), 16, 2, grid)
        assert len(operator.lepe) == branches, grid


@pytest.mark.parametrize("attn_type", ["LLS", "LLSX"])
def test_attn_type_must_fit(attn_type):
    with pytest.raises(ValueError, match=f"attn_type='{attn_type}'"):
        FLattenSwin(attn_type=attn_type)
