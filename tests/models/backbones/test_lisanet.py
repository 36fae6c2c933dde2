"""LiSANet on video, with weights of another resolution, and its norms."""

import pytest
import torch
import torch.nn.functional as F
from torch.nn import SyncBatchNorm

from helpers.backbones import CASES
from mmlisa.conversion import inflate
from mmlisa.models.backbones import LiSANet

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


@pytest.mark.parametrize("trained", [True, False])
def test_a_norm_config_is_that_of_openmmlabs_files(trained):
    network = LiSANet("small", norm_cfg=dict(type="SyncBN", requires_grad=trained))
    norms = [module for module in network.modules() if isinstance(module, SyncBatchNorm)]
    assert norms
    assert all(p.requires_grad is trained for norm in norms for p in norm.parameters())


def test_learned_positions_are_bicubic_on_another_grid():
    model = LiSANet(ARCHS["lisanet-isotropic"], image_size=64).eval()
    image, stem = torch.randn(1, 3, 96, 80), model.stem
    with torch.no_grad():
        x, grid = stem(image)
        plain = stem.norm(stem.proj(image).flatten(2).mT)
        expected = F.interpolate(stem.position_embedding, grid, mode="bicubic").flatten(2).mT
    torch.testing.assert_close(x - plain, expected)
