"""Promises of single hosts; tests/conversion compares the hosts with those of the libraries."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers.backbones import CASES
from helpers.networks import randomised
from mmlisa.conversion import inflate
from mmlisa.models.attention import build_attention
from mmlisa.models.backbones import CastlingMViTv2, FLattenSwin, LiSANet
from mmlisa.models.backbones.mvitv2 import RelativeBias

ARCHS = {kind: CASES[kind]["arch"] for kind in ("lisanet-hybrid", "lisanet", "lisanet-v1", "lisanet-isotropic")}


@pytest.fixture(params=ARCHS)
def arch(request):
    torch.manual_seed(0)
    return ARCHS[request.param]


@pytest.mark.parametrize("size", [(8, 64, 64), (5, 67, 41)])
def test_maps_of_a_video(arch, size):
    model = LiSANet(arch, image_size=(8, 64, 64)).eval()
    maps = model(torch.randn(2, 3, *size))
    expected = [
        (2, c, -(-size[0] // 2), -(-size[1] // s), -(-size[2] // s))
        for c, s in zip(model.feature_channels, model.feature_strides, strict=True)
    ]
    assert [tuple(m.shape) for m in maps] == expected


def test_centre_inflation_sees_every_frame_as_the_image_model_does(arch):
    image_model = LiSANet(arch, image_size=64).eval()
    with torch.no_grad():
        for p in image_model.parameters():
            p.add_(0.1 * torch.randn_like(p))
    video_model = LiSANet(arch, image_size=(8, 64, 64)).eval()
    video_model.load_state_dict(inflate(image_model.state_dict(), video_model))
    video = torch.randn(1, 3, 8, 64, 64)
    with torch.no_grad():
        maps = video_model(video)
        for t in range(4):
            # Embeddings overlap in time: they are centred on the frames 0, 2, …
            for ours, theirs in zip(maps, image_model(video[:, :, 2 * t]), strict=True):
                torch.testing.assert_close(ours[:, :, t], theirs, rtol=1e-3, atol=1e-4)


def test_inflation_refuses_a_deeper_image_model():
    deeper = LiSANet(dict(ARCHS["lisanet-hybrid"], depths=(1, 1, 3, 1)), image_size=64)
    with pytest.raises(ValueError, match=r"stages\.2\.blocks\.1"):
        inflate(deeper.state_dict(), LiSANet(ARCHS["lisanet-hybrid"], image_size=(8, 64, 64)))


@pytest.mark.parametrize("name", ["lisanet", "lisanet-isotropic"])
def test_weights_of_another_resolution_are_resampled_as_they_are_loaded(name):
    small, large = LiSANet(ARCHS[name], image_size=64).eval(), LiSANet(ARCHS[name], image_size=96).eval()
    large.load_state_dict(small.state_dict())
    image = torch.randn(1, 3, 96, 96)
    with torch.no_grad():
        torch.testing.assert_close(large(image), small(image), rtol=1e-4, atol=1e-5)
    assert large.stages[-1].blocks[0].attn.kernel_b.shape[-2:] == ((3, 3) if name == "lisanet" else (6, 6))


def test_learned_positions_are_bicubic_on_another_grid():
    model = LiSANet(ARCHS["lisanet-isotropic"], image_size=64).eval()
    image, stem = torch.randn(1, 3, 96, 80), model.stem
    with torch.no_grad():
        x, grid = stem(image)
        plain = stem.norm(stem.proj(image).flatten(2).mT)
        expected = F.interpolate(stem.position_embedding, grid, mode="bicubic").flatten(2).mT
    torch.testing.assert_close(x - plain, expected)


def test_windows_are_maps_of_their_own():
    """Each window gives what the operator gives on that window alone; at the border, on the part that is of the map."""
    whole = randomised(build_attention(dict(type="FocusedLinearAttention", position=False), 16, 2, (4, 4))).double()
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
    plain = randomised(build_attention(cfg, 16, 2, (8, 8))).double()
    shifted = build_attention(dict(cfg, shift=True), 16, 2, (8, 8)).double()
    shifted.load_state_dict(plain.state_dict())
    for grid, shift in (((8, 12), 2), ((6, 9), 2), ((4, 12), 0)):
        x = torch.randn(2, *grid, 16, dtype=torch.double)
        rolled = plain(x.roll((-shift, -shift), (1, 2)).flatten(1, 2), grid).unflatten(1, grid)
        expected = rolled.roll((shift, shift), (1, 2)).flatten(1, 2)
        torch.testing.assert_close(shifted(x.flatten(1, 2), grid), expected)


def test_every_second_block_shifts_its_windows():
    arch = dict(base="tiny", channels=(16, 32, 64, 128), num_heads=(1, 2, 4, 8), depths=(3, 2, 2, 2))
    for options, expected in ((dict(window=7, shift=True), [False, True, False]), (dict(window=7), [False] * 3)):
        model = FLattenSwin(arch, attention=options)
        assert [block.attn.shift for block in model.stages[0].blocks] == expected
    with pytest.raises(ValueError, match="shift=True"):
        FLattenSwin(arch, attention=dict(shift=True))


def test_cross_shaped_windows_by_definition():
    """Stripes of one branch see their own stripe only; stage 4 and a grid within the split are global."""
    operator = randomised(
        build_attention(dict(type="CrossShapedWindowAttention", split_size=2), 16, 4, (8, 8))
    ).double()
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


@pytest.mark.parametrize("side", [5, 8, 12])  # pretraining grid
@pytest.mark.parametrize(
    ("queries", "keys"), [((5, 8), (5, 8)), ((12, 6), (3, 2)), ((3, 5), (6, 10)), ((7, 10), (3, 4))]
)
def test_relative_positions_on_any_grid_are_mmpretrains(side, queries, keys):
    """timm's has no grid but the pretraining one."""
    mvit = pytest.importorskip("mmpretrain.models.backbones.mvit")
    torch.manual_seed(0)
    bias = RelativeBias(4, side).double()
    query = torch.randn(2, 3, queries[0] * queries[1], 4, dtype=torch.float64)
    logits = torch.zeros(2, 3, queries[0] * queries[1], keys[0] * keys[1], dtype=torch.float64)
    expected = mvit.add_decomposed_rel_pos(logits, query, queries, keys, bias.rel_pos_h, bias.rel_pos_w)
    torch.testing.assert_close(bias(query, queries, keys), expected)


@pytest.mark.parametrize("image_size", [(64, 128), (128, 64)])
def test_mvitv2s_tables_reach_over_the_longer_side(image_size):
    arch = dict(base="tiny", depths=(1, 1, 1, 1))
    found, square = (CastlingMViTv2(arch, image_size=size).state_dict() for size in (image_size, 128))
    assert {key: tensor.shape for key, tensor in found.items()} == {key: t.shape for key, t in square.items()}
    assert len(square["stages.1.downsample.attn.bias.rel_pos_w"]) == 2 * 16 - 1


def test_mvitv2s_operators_have_the_pretraining_grid():
    arch = dict(base="tiny", depths=(1, 2, 1, 1), channels=16)
    stages = CastlingMViTv2(arch, image_size=(200, 136), attention=dict(type="LiSA")).stages
    assert stages[0].blocks[0].attn.kernel_b.shape[1:] == (50, 34)
    assert stages[1].blocks[0].attn.kernel_b.shape[1:] == (25, 17)
