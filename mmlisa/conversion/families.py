"""The published networks whose weights this package converts, and the names by which it recognises their files."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from . import openmmlab, rules
from .rules import Rules

_PLAIN = ("FLattenDeiT", "CastlingDeiT", "CastlingViT", "InteractiveViT")
_LCNETS, _ESNETS = ("LCNet", "CastlingLCNetViT"), ("ESNet", "CastlingESNetViT")


@dataclass(frozen=True)
class Family:
    """A published network.

    Attributes:
        name: name for messages.
        signature: entries found in all files of this family and in no others.
        rules: rules for renaming the weights, by the name of the backbone.
        timm: prefixes of its models' names in timm.
        is_own: whether the files hold one of our networks itself, not a host of it. All blocks must then match.
        prepare: changes of a state dict that come before the renaming.
    """

    name: str
    signature: tuple[str, ...]
    rules: dict[str, Rules]
    timm: tuple[str, ...] = ()
    is_own: bool = False
    prepare: Callable[[Mapping[str, Tensor]], dict[str, Tensor]] | None = None


FAMILIES = (
    Family(
        "MILA",
        ("patch_embed.conv1.conv.weight", "layers.0.blocks.0.attn.qk.weight"),
        {"MILA": rules.MILA},
        is_own=True,
    ),
    Family(
        "H-ViT³",
        ("patch_embed.conv.0.conv.weight", "layers.0.blocks.0.attn.w3"),
        {"HViT3": rules.HVIT3},
        is_own=True,
    ),
    Family("ViT³", ("patch_embed.proj.weight", "blocks.0.attn.w3"), {"ViT3": rules.DEIT}, is_own=True),
    # These stand before their hosts, because their files also have the hosts' signatures.
    Family(
        "PolaFormer-Swin",
        ("patch_embed.proj.weight", "layers.0.blocks.0.attn.qkvg.weight"),
        {"FLattenSwin": rules.SWIN_OFFICIAL},
        is_own=True,
    ),
    Family(
        "PolaFormer-PVT",
        ("pos_embed1", "block1.0.attn.qg.weight"),
        {"FLattenPVT": rules.PVT},
        is_own=True,
    ),
    Family(
        "Swin",
        ("patch_embed.proj.weight", "layers.0.blocks.0.norm1.weight", "layers.3.downsample.norm.weight"),
        {"FLattenSwin": rules.SWIN_TIMM},
        ("swin_tiny", "swin_small", "swin_base"),
    ),
    Family(
        "Swin, official names",
        ("patch_embed.proj.weight", "layers.0.blocks.0.norm1.weight", "layers.0.downsample.norm.weight"),
        {"FLattenSwin": rules.SWIN_OFFICIAL},
    ),
    Family("PVT", ("patch_embed1.proj.weight", "pos_embed1"), {"FLattenPVT": rules.PVT}),
    Family(
        "PVTv2, official names",
        ("block1.0.mlp.dwconv.dwconv.weight",),
        {"FLattenPVTv2": rules.PVT, "LiSANet": rules.PVT_TO_LISANET},
    ),
    Family(
        "PVTv2",
        ("stages.0.blocks.0.mlp.dwconv.weight", "stages.1.downsample.proj.weight"),
        {"FLattenPVTv2": rules.PVT, "LiSANet": rules.PVT_TO_LISANET},
        ("pvt_v2_b",),
    ),
    Family("CSwin", ("stage1_conv_embed.0.weight", "merge1.conv.weight"), {"FLattenCSwin": rules.CSWIN}),
    Family(
        "DeiT or ViT",
        ("cls_token", "pos_embed", "patch_embed.proj.weight", "blocks.0.attn.qkv.weight"),
        dict.fromkeys(_PLAIN, rules.DEIT),
        ("deit_", "vit_"),
    ),
    Family(
        "CAFormer or ConvFormer",
        ("stem.conv.weight", "stages.0.blocks.0.token_mixer.pwconv1.weight"),
        {"iViT": rules.CAFORMER, "LiSANet": rules.CAFORMER_TO_LISANET},
        ("caformer_", "convformer_"),
    ),
    Family(
        "LeViT",
        ("stem.conv1.linear.weight", "stages.0.blocks.0.attn.qkv.linear.weight"),
        {"CastlingLeViT": rules.LEVIT},
        ("levit_",),
    ),
    Family(
        "MViTv2",
        ("patch_embed.proj.weight", "stages.0.blocks.0.attn.pool_q.weight"),
        {"CastlingMViTv2": rules.MVITV2},
        ("mvitv2_",),
    ),
    Family(
        "LCNet",
        ("conv_stem.weight", "blocks.5.1.se.conv_reduce.weight"),
        dict.fromkeys(_LCNETS, rules.LCNET),
        ("lcnet_",),
    ),
    Family(
        "LCNet, Paddle's names",
        ("conv1.conv.weight", "blocks2.0.dw_conv.conv.weight"),
        dict.fromkeys(_LCNETS, rules.PADDLE_LCNET),
    ),
    Family(
        "ESNet, Paddle's names",
        ("_conv1._conv.weight", "2_1._conv_dw_1._conv.weight"),
        dict.fromkeys(_ESNETS, rules.PADDLE_ESNET),
    ),
    Family(
        "Swin, OpenMMLab's names",
        ("patch_embed.projection.weight", "stages.0.blocks.0.attn.w_msa.qkv.weight"),
        {"FLattenSwin": (*openmmlab.SWIN, *rules.SWIN_OFFICIAL)},
        prepare=openmmlab.merge_by_slicing,
    ),
    Family(
        "PVT, OpenMMLab's names",
        ("layers.0.0.projection.weight", "layers.0.1.0.pos_embed"),
        {"FLattenPVT": (*openmmlab.PVT, *rules.PVT)},
        prepare=openmmlab.split_projections,
    ),
    Family(
        "PVTv2, OpenMMLab's names",
        ("layers.0.0.projection.weight", "layers.0.1.0.attn.attn.in_proj_weight"),
        {
            "FLattenPVTv2": (*openmmlab.PVT_V2, *rules.PVT),
            "LiSANet": (*openmmlab.PVT_V2, *rules.PVT_TO_LISANET),
        },
        prepare=openmmlab.split_projections,
    ),
    Family(
        "DeiT or ViT, OpenMMLab's names",
        ("cls_token", "pos_embed", "layers.0.ln1.weight"),
        dict.fromkeys(_PLAIN, (*openmmlab.VIT, *rules.DEIT)),
    ),
    Family(
        "LeViT, OpenMMLab's names",
        ("patch_embed.patch_embed.0.conv.weight", "stages.0.0.block.qkv.linear.weight"),
        {"CastlingLeViT": (*openmmlab.LEVIT, *rules.LEVIT)},
    ),
    Family(
        "MViTv2, OpenMMLab's names",
        ("patch_embed.projection.weight", "blocks.0.attn.pool_q.weight"),
        {"CastlingMViTv2": (*openmmlab.MVITV2, *rules.MVITV2)},
        prepare=openmmlab.divide_into_stages,
    ),
)


def _has_signature(state: Mapping[str, Any], family: Family) -> bool:
    # A LiSANet has PVTv2's names, too.
    return all(name in state for name in family.signature) and not any(n.endswith(".attn.kernel_a") for n in state)


def is_known(state: Mapping[str, Any]) -> bool:
    """Return True if ``state`` has the signature of a family."""
    return any(_has_signature(state, family) for family in FAMILIES)


def recognise(state: Mapping[str, Any]) -> Family:
    """Return the family whose signature ``state`` has.

    Raises:
        ValueError: the family is unknown; the message lists the known ones.
    """
    for family in FAMILIES:
        if _has_signature(state, family):
            return family
    known = ", ".join(dict.fromkeys(family.name.split(",")[0] for family in FAMILIES))
    raise ValueError(
        f"the weights ({', '.join(sorted(state)[:5])}, …) belong to none of the known networks, {known}. A file of this "
        "package's own training needs no conversion: init_cfg=dict(type='Pretrained', checkpoint=…, prefix='backbone.')"
    )
