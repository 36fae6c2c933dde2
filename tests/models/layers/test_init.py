"""What networks start from: every layer's standard deviation, and what that makes of the features."""

import re
from collections import defaultdict
from math import prod, sqrt

import pytest
import timm
import torch
from torch import Tensor, nn

from helpers.backbones import CASES
from helpers.operators import CASES as OPERATORS
from mmlisa.models.attention import build_attention
from mmlisa.models.backbones import (
    CastlingDeiT,
    CastlingLeViT,
    CastlingMViTv2,
    ESNet,
    FLattenPVTv2,
    FLattenSwin,
    LCNet,
    LiSANet,
    iViT,
)
from mmlisa.models.layers.tokens import TokenConv, TokenConv3d
from mmlisa.registry import MODELS

NARROW = dict(channels=(16, 32, 64, 128), num_heads=(1, 2, 4, 8), depths=(2, 2, 2, 2))
SOFTMAX = dict(type="SoftmaxAttention")
# Each host with its own attention, and timm's network with its own initialisation.
HOSTS = {
    "lcnet": (lambda: LCNet("x0.5"), lambda: timm.create_model("lcnet_050")),
    "levit": (
        lambda: CastlingLeViT(
            dict(base="128", depths=(2, 3, 4), num_heads=(4, 6, 8), downsample="subsample", mlp_conv=None),
            attention=dict(type="LeViTAttention", head_dims=16),
        ),
        lambda: timm.create_model("levit_128s"),
    ),
    "mvitv2": (
        lambda: CastlingMViTv2(dict(base="tiny", castled=False), image_size=64),
        lambda: timm.create_model("mvitv2_tiny", img_size=(64, 64)),
    ),
    "swin": (
        lambda: FLattenSwin(dict(base="tiny", **NARROW), attn_type="SSSS", image_size=112),
        lambda: timm.create_model(
            "swin_tiny_patch4_window7_224", img_size=112, embed_dim=16, depths=(2, 2, 2, 2), num_heads=(1, 2, 4, 8)
        ),
    ),
    "pvtv2": (
        lambda: FLattenPVTv2(dict(base="b0", **NARROW), attn_type="SSSS"),
        lambda: timm.create_model("pvt_v2_b0", embed_dims=(16, 32, 64, 128), num_heads=(1, 2, 4, 8)),
    ),
    "caformer": (
        lambda: iViT("tiny", attention=dict(**SOFTMAX, qkv_bias=False)),
        lambda: timm.create_model("caformer_s18"),
    ),
    "deit": (
        lambda: CastlingDeiT(dict(base="tiny", depth=2, mlp_conv=None), attention=SOFTMAX),
        lambda: timm.create_model("deit_tiny_patch16_224", depth=2),
    ),
}


def deviations(model: nn.Module) -> dict[torch.Size, float]:
    """Standard deviation of all weights of a shape; of those that are large enough to have one.

    Without the class token: DeiT's own code draws it as its positions, timm from 1e-6.
    """
    weights = defaultdict(list)
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1 and parameter.numel() > 100 and not re.search("head|classifier|cls_token", name):
            weights[parameter.squeeze().shape].append(parameter.detach().flatten())
    return {shape: torch.cat(tensors).std().item() for shape, tensors in weights.items()}


@pytest.mark.parametrize("host", HOSTS)
def test_weights_start_as_timms(host):
    torch.manual_seed(0)
    ours, theirs = (deviations(build()) for build in HOSTS[host])
    common = ours.keys() & theirs.keys()
    assert len(common) >= 0.8 * len(ours), sorted(ours.keys() ^ theirs.keys())
    for shape in common:  # timm's MViTv2 cuts its normal distribution off at two deviations, and loses 12%
        noise = 5 / sqrt(2 * prod(shape))
        assert ours[shape] == pytest.approx(theirs[shape], rel=0.15 + noise), shape


# Hosts whose convolutions start by their fan-out, the mobile ones and those after PVTv2, and whose layers all start alike.
BY_FAN_OUT = (LiSANet, LCNet, ESNet, FLattenPVTv2)


def expected_deviation(model: nn.Module, name: str, module: nn.Module, parameter: Tensor) -> float | None:
    """Linear layers at 0.02 and convolutions as PyTorch has them, unless the host's own code differs."""
    if isinstance(module, nn.Conv2d | nn.Conv3d | nn.Linear):
        if isinstance(model, iViT):
            return 0.02
        if isinstance(module, nn.Linear) and not isinstance(model, CastlingLeViT):
            return 0.02
        if not isinstance(model, BY_FAN_OUT):
            return 1 / sqrt(3 * parameter[0].numel())
        return sqrt(2 / (module.out_channels // module.groups * prod(module.kernel_size)))
    if name.startswith("kernel_") and isinstance(module.norm, nn.Identity):
        return prod(parameter.shape[parameter.ndim - 2 :]) ** -0.5
    return 0.0 if name in ("bias_a", "scale", "positional_encoding", "attention_biases") else 0.02


@pytest.mark.parametrize("case", CASES)
def test_weights_start_by_formula(case):
    torch.manual_seed(0)
    model = MODELS.build(CASES[case])
    for path, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.ndim > 1 and parameter.numel() > 100 and not name.startswith("mix_"):
                expected = expected_deviation(model, name, module, parameter)
                noise = 5 / sqrt(2 * parameter.numel())
                assert parameter.std().item() == pytest.approx(expected, rel=0.02 + noise), f"{path}.{name}"
                assert abs(parameter.mean()) <= 5 * expected / sqrt(parameter.numel()), f"{path}.{name}"
            if name == "bias" and isinstance(module, nn.Linear) and not isinstance(model, CastlingLeViT):
                assert not parameter.any(), f"{path}.{name}"


def operator_deviation(name: str, module: nn.Module) -> float:
    """Of operators before their host initialises the layers: 0.02, as timm's tables of positions, or nothing at first.

    LiSA without the norm that restores its scale starts with kernels that keep it.
    """
    if isinstance(module, nn.Linear | nn.Conv2d):  # PyTorch's
        return 1 / sqrt(3 * module.weight[0].numel())
    if name.startswith("kernel_") and isinstance(module.norm, nn.Identity):
        return prod(getattr(module, name).shape[-2:]) ** -0.5
    return 0.0 if name in ("bias_a", "scale", "positional_encoding", "attention_biases") else 0.02


@pytest.mark.parametrize("case", OPERATORS)
def test_operators_start_by_formula(case):
    torch.manual_seed(0)
    grid = (11, 12)
    operator = build_attention(OPERATORS[case], 64, 2, grid)
    for path, module in operator.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.ndim > 1 and parameter.numel() > 100:
                expected = operator_deviation(name, module)
                noise = 5 / sqrt(2 * parameter.numel())
                assert parameter.std().item() == pytest.approx(expected, rel=0.02 + noise), f"{path}.{name}"
                assert abs(parameter.mean()) <= 5 * expected / sqrt(parameter.numel()), f"{path}.{name}"


def test_depthwise_kernels_do_not_shrink_with_the_width():
    """3x3: sqrt(2 / 9) = 0.47 at any width, in two dimensions and, 3x3x3, sqrt(2 / 27) in three."""
    torch.manual_seed(0)
    for size, kind, expected in ((64, TokenConv, 0.471), ((8, 64, 64), TokenConv3d, 0.272)):
        arch = dict(base="small", depths=(1, 1), channels=(64, 128), num_heads=(2, 4))
        arch |= dict(mixers="LL", strides=(4, 2), mlp_ratios=(4, 4))
        model = MODELS.build(dict(type="LiSANet", arch=arch, image_size=size))
        convolutions = [m for m in model.modules() if isinstance(m, kind)]
        assert len(convolutions) == 4
        for convolution in convolutions:
            assert convolution.weight.std().item() == pytest.approx(expected, rel=0.1)


# Measured at four seeds: standard deviation of the returned maps; how much a block multiplies that of its residual stream.
MAPS, GROWTH = (0.95, 1.05), (0.98, 1.05)
BANDS = {
    # x + CPE(x), a convolution of gain sqrt(2): up to sqrt(3), less at the border.
    "lisanet": (MAPS, (1.25, 1.9)),
    "lisanet-hybrid": (MAPS, (1.25, 1.9)),
    "lisanet-bn": (MAPS, (1.25, 1.9)),
    # After hard-swish.
    "lcnet": ((0.45, 0.75), None),
    "lcnet-vit": ((0.45, 0.75), (1.02, 1.3)),
    "esnet": ((0.45, 0.75), None),
    "esnet-vit": ((0.45, 0.85), (1.02, 1.3)),
    "esnet-vit-lisa": ((0.45, 0.85), GROWTH),
    # BN, and the pooled skip of its shrinking blocks.
    "levit": ((0.95, 1.4), GROWTH),
    "ivit-lisa": (MAPS, (0.98, 1.2)),
    # x + cpe(x) before every branch, with PyTorch's default initialisation: up to sqrt(4 / 3) each.
    "mila": (MAPS, (1.05, 1.5)),
    "h-vit3": (MAPS, (1.0, 1.35)),
    "h-vit3-classifier": (MAPS, (1.0, 1.35)),
    "vit3": (MAPS, (1.0, 1.35)),
}
# CAFormer's convolutions start small; ViT³'s gated unit and PolaFormer's gate multiply two small projections.
SMALL_BRANCHES = ("ivit", "h-vit3", "vit3", "pola")


@pytest.mark.parametrize("case", CASES)
def test_features_keep_their_scale(case):
    """Of images of unit variance: every returned map, the stream through every block, each branch beside the stream."""
    torch.manual_seed(0)
    model = MODELS.build({**CASES[case], "drop_path_rate": 0.0}).train()
    (low, high), growth = BANDS.get(case, (MAPS, GROWTH))
    streams, branches = [], []
    for name, module in model.named_modules():
        if any(module in stage.blocks for stage in model.stages):
            module.register_forward_hook(lambda _, x, y: streams.append((y.std() / x[0].std()).item()))
        if name.endswith((".attn", ".token_mixer", ".mlp")) and ".downsample." not in name:
            module.register_forward_hook(lambda _, x, y: branches.append(y.std().item()))
    for feature in model(torch.randn(4, 3, 64, 64)):
        assert low < feature.std() < high
    assert all(growth[0] < ratio < growth[1] for ratio in streams), streams
    if not case.startswith("levit"):  # its branches end in a norm that starts at zero
        low = 1e-4 if case.startswith(SMALL_BRANCHES) else 1e-3
        assert all(low < branch < 0.5 for branch in branches), branches
