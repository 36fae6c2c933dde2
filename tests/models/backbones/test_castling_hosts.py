"""With its own attention, each host of Castling-ViT is timm's, output for output."""

import re

import pytest
import timm
import torch
from torch import nn

from mmlisa.models.attention.pooled import RelativeBias
from mmlisa.models.backbones import CastlingDeiT, CastlingLeViT, CastlingMViTv2, LCNet


def timm_model(name: str, **options) -> nn.Module:
    """In eval mode and fp64, which tells epsilons; with statistics and weights that hide nothing (some norms start at zero)."""
    torch.manual_seed(0)
    model = timm.create_model(name, **options).double().eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            for tensor, low, high in (
                (module.weight, 0.5, 1.5),
                (module.bias, -0.5, 0.5),
                (module.running_mean, -0.5, 0.5),
                (module.running_var, 0.5, 2.0),
            ):
                nn.init.uniform_(tensor, low, high)
    for name, parameter in model.named_parameters():
        if "attention_biases" in name or "rel_pos" in name:
            nn.init.normal_(parameter)
    return model


def load(ours: nn.Module, theirs: nn.Module, rename, left_out: tuple[str, ...]) -> nn.Module:
    """Copies every weight; what timm has and we do not must be named."""
    state = {rename(name): tensor for name, tensor in theirs.state_dict().items() if not name.startswith(left_out)}
    ours.double().load_state_dict(state, strict=True)
    return ours.eval()


@pytest.mark.parametrize("size", [(96, 96), (67, 101)])
def test_lcnet_is_timms(size):
    def rename(name: str) -> str:
        # timm splits the fourth stage in two groups.
        name = re.sub(r"^blocks\.4\.(\d)", lambda match: f"blocks.3.{int(match[1]) + 2}", name)
        name = name.replace("blocks.5.", "blocks.4.").replace("blocks.0.0.", "stem.3.")
        name = re.sub(r"^bn1\.", "stem.1.", name.replace("conv_stem", "stem.0"))
        return re.sub(r"^blocks\.(\d)", lambda match: f"stages.{int(match[1]) - 1}.downsample", name)

    theirs = timm_model("lcnet_050")
    ours = load(LCNet("x0.5"), theirs, rename, ("conv_head", "classifier"))
    image = torch.randn(2, 3, *size, dtype=torch.float64)
    with torch.no_grad():
        maps = theirs.forward_intermediates(image, indices=4, intermediates_only=True)
        torch.testing.assert_close(ours(image), tuple(maps[-4:]), rtol=1e-8, atol=1e-8)


def test_levit_is_timms():
    def rename(name: str) -> str:
        name = name.replace("attn_downsample.proj.ln", "attn.proj").replace("attn_downsample.q.ln", "attn.q")
        name = name.replace("attn_downsample", "attn").replace("attn.attention_biases", "attn.bias.attention_biases")
        name = name.replace("attn.proj.ln.linear", "attn.proj").replace("attn.proj.ln.bn", "norm")
        return re.sub(r"stem\.conv(\d)", lambda match: f"stem.{2 * int(match[1]) - 2}", name)

    theirs = timm_model("levit_128s", img_size=96)
    ours = CastlingLeViT(
        dict(base="128", depths=(2, 3, 4), num_heads=(4, 6, 8), downsample="subsample", mlp_conv=None),
        attention=dict(type="LeViTAttention", head_dims=16),
        image_size=96,
    )
    ours = load(ours, theirs, rename, ("head",))
    image = torch.randn(2, 3, 96, 96, dtype=torch.float64)
    with torch.no_grad():
        expected = theirs.forward_features(image)
        torch.testing.assert_close(ours(image)[-1].flatten(2).mT, expected, rtol=1e-8, atol=1e-8)


def test_deit_is_timms():
    theirs = timm_model("deit_tiny_patch16_224", img_size=96, depth=2)
    ours = CastlingDeiT(
        dict(base="tiny", depth=2, mlp_conv=None),
        attention=dict(type="SoftmaxAttention"),
        image_size=96,
        out_type="cls_token",
    )

    def rename(name: str) -> str:
        name = name.replace("patch_embed.", "stem.").replace("pos_embed", "stem.position")
        return re.sub(r"^blocks\.(\d)", r"stages.\1.blocks.0", name.replace("cls_token", "stem.cls_token"))

    ours = load(ours, theirs, rename, ("head",))
    image = torch.randn(2, 3, 96, 96, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(ours(image)[-1], theirs.forward_features(image)[:, 0], rtol=1e-8, atol=1e-8)


def test_mvitv2_is_timms():
    def rename(name: str) -> str:
        # The block of stride 2 at the head of a stage.
        name = re.sub(r"^stages\.([1-3])\.blocks\.0\.", r"stages.\1.downsample.", name).replace("patch_embed", "stem")
        name = re.sub(r"^stages\.([1-3])\.blocks\.(\d)", lambda m: f"stages.{m[1]}.blocks.{int(m[2]) - 1}", name)
        name = re.sub(r"attn\.(pool_\w)\.", r"attn.\1.conv.", name)
        name = re.sub(r"attn\.norm_(\w)\.", r"attn.pool_\1.norm.", name)
        return re.sub("^norm", "norm3", name.replace("attn.rel_pos", "attn.bias.rel_pos"))

    theirs = timm_model("mvitv2_tiny", img_size=96)
    ours = CastlingMViTv2(dict(base="tiny", castled=False), image_size=96, out_indices=(3,))
    ours = load(ours, theirs, rename, ("head",))
    image = torch.randn(2, 3, 96, 96, dtype=torch.float64)
    with torch.no_grad():
        expected = theirs.forward_features(image)
        torch.testing.assert_close(ours(image)[-1].flatten(2).mT, expected, rtol=1e-8, atol=1e-8)


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
