"""Names of hosts elsewhere: in timm, and of published networks whose weights they take; tables that several hosts share.

A host lists its networks in ``Backbone.published``, each with the table that leads from their names to its own. The names of
OpenMMLab's libraries (mmdetection, mmsegmentation, mmpretrain) lead to those of the networks' authors first.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

# (pattern of the published name, our name). All matching rules apply in turn. None drops the weight. Several names split the
# tensor into equal parts along its first axis. {1+1} in a name is a sum.
Names = str | None | tuple[str | None, ...]
Rules = tuple[tuple[str, Names], ...]


@dataclass(frozen=True)
class Network:
    """A published network.

    Attributes:
        name: name for messages.
        keys: entries that all of its files have, and no files of other networks.
        timm: prefixes of its models' names in timm.
        is_ours: True if the files hold a network of this package (MILA, PolaFormer), False if they hold a base network (Swin,
            PVT) of which a part fits.
        prepare: changes of a state dict that come before all rules.
        rules: rules that come before those of the host.
        foreign: parts of names of relatives that compute something else; a file with one of them is refused.
        accepts: what else decides, beside ``keys``, whether a file holds this network.
        needed: parts of our names that belong to a network of other settings, such as registers, if only the file or only the
            backbone has an entry of such a name; the file is refused.
    """

    name: str
    keys: tuple[str, ...]
    timm: tuple[str, ...] = ()
    is_ours: bool = False
    prepare: Callable[[Mapping[str, Tensor]], dict[str, Tensor]] | None = None
    rules: Rules = ()
    foreign: tuple[str, ...] = ()
    accepts: Callable[[Mapping[str, Any]], bool] | None = None
    needed: tuple[str, ...] = ()

    def is_in(self, state: Mapping[str, Any]) -> bool:
        """Return whether ``state`` holds this network."""
        # A LiSANet has PVTv2's names, too.
        if not all(key in state for key in self.keys) or any(name.endswith(".attn.kernel_a") for name in state):
            return False
        return self.accepts is None or self.accepts(state)


@dataclass(frozen=True)
class TimmNames:
    """Names of a host's archs in timm, and their classifiers.

    Attributes:
        name: pattern of the names, such as ``'flatten_swin_{}'``.
        archs: archs by the text in the place of ``{}``.
        hidden: options of the classifier's :func:`mmlisa.models.layers.blocks.hidden_layers`; None for a linear classifier.
        crop_pct, crop_mode: timm's, of its tests: the part of a resized image that the network sees; ``'squash'`` resizes without
            keeping the ratio of the sides.
    """

    name: str
    archs: dict[str, str]
    hidden: dict[str, Any] | None = None
    crop_pct: float = 0.875
    crop_mode: str = "center"


def split_projections(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Split OpenMMLab's joint projection of PVT into the authors' two, of the query and of key and value."""
    split = {}
    for name, tensor in state.items():
        if ".in_proj_" in name:
            third = len(tensor) // 3
            split[name.replace(".in_proj_", ".q_")] = tensor[:third]
            split[name.replace(".in_proj_", ".kv_")] = tensor[third:]
        else:
            split[name] = tensor
    return split


def fold_layer_scales(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Multiply DeiT III's and DINOv2's layer scales into the projections before them, which changes no value of the network."""
    folded = dict(state)
    scales = (("ls1.gamma", "attn.proj"), ("ls2.gamma", "mlp.fc2"), ("gamma_1", "attn.proj"), ("gamma_2", "mlp.fc2"))
    for branch, projection in scales:
        for name in [name for name in state if name.endswith(f".{branch}")]:
            scale, block = folded.pop(name), name.removesuffix(branch)
            for part in ("weight", "bias"):
                weight = folded[f"{block}{projection}.{part}"]
                folded[f"{block}{projection}.{part}"] = weight * scale.view(-1, *[1] * (weight.ndim - 1))
    return folded


OPENMMLAB_MLP: Rules = ((r"\.ffn\.layers\.0\.0\.", ".mlp.fc1."), (r"\.ffn\.layers\.1\.", ".mlp.fc2."))
_OPENMMLAB_JOINT: Rules = ((r"\.attn\.attn\.in_proj_", ".attn.qkv."), (r"\.attn\.attn\.out_proj\.", ".attn.proj."))
OPENMMLAB_PVT_V2: Rules = (
    (r"^layers\.(\d)\.0\.projection\.", r"patch_embed{\1+1}.proj."),
    (r"^layers\.(\d)\.0\.norm\.", r"patch_embed{\1+1}.norm."),
    (r"^layers\.(\d)\.1\.0\.pos_embed$", r"pos_embed{\1+1}"),
    (r"^layers\.(\d)\.1\.", r"block{\1+1}."),
    (r"^layers\.(\d)\.2\.", r"norm{\1+1}."),
    (r"\.ffn\.layers\.0\.", ".mlp.fc1."),
    (r"\.ffn\.layers\.1\.", ".mlp.dwconv.dwconv."),
    (r"\.ffn\.layers\.[34]\.", ".mlp.fc2."),
    (r"\.attn\.attn\.(q|kv)_", r".attn.\1."),
    *_OPENMMLAB_JOINT,
)
PADDLE_NORM: Rules = ((r"\._mean$", ".running_mean"), (r"\._variance$", ".running_var"))
PADDLE_SE: Rules = ((r"\.conv1\.", ".conv_reduce."), (r"\.conv2\.", ".conv_expand."))

# Networks that fit several hosts.
PVT_V2 = (
    Network("PVTv2, official names", ("block1.0.mlp.dwconv.dwconv.weight",)),
    Network("PVTv2", ("stages.0.blocks.0.mlp.dwconv.weight", "stages.1.downsample.proj.weight"), timm=("pvt_v2_b",)),
    Network(
        "PVTv2, OpenMMLab's names",
        ("layers.0.0.projection.weight", "layers.0.1.0.attn.attn.in_proj_weight"),
        prepare=split_projections,
        rules=OPENMMLAB_PVT_V2,
    ),
)
CAFORMER = Network(
    "CAFormer or ConvFormer",
    ("stem.conv.weight", "stages.0.blocks.0.token_mixer.pwconv1.weight"),
    timm=("caformer_", "convformer_"),
)
DEIT = (
    Network(
        "DeiT or ViT",
        ("cls_token", "pos_embed", "patch_embed.proj.weight", "blocks.0.attn.qkv.weight"),
        timm=("deit_", "vit_"),
        prepare=fold_layer_scales,
        # CLIP's first norm, registers, a ResNet as stem, norms of query and key or within an MLP, CaiT's talking heads.
        foreign=(
            "norm_pre.",
            "reg_token",
            "register_tokens",
            "patch_embed.backbone.",
            ".q_norm.",
            ".mlp.norm.",
            ".fc1_g.",
            ".proj_l.",
        ),
    ),
    Network(
        "DeiT or ViT, OpenMMLab's names",
        ("cls_token", "pos_embed", "layers.0.ln1.weight"),
        rules=(
            (r"^patch_embed\.projection\.", "patch_embed.proj."),
            (r"^layers\.(\d+)\.ln(\d)\.", r"blocks.\1.norm\2."),
            (r"^layers\.", "blocks."),
            (r"^ln1\.", "norm."),
            *_OPENMMLAB_JOINT,
            *OPENMMLAB_MLP,
        ),
    ),
)

# Rules that several hosts have.
PVT_RULES: Rules = (
    (r"^cls_token$", None),  # PVT's, which FLatten-PVT does not have
    (r"^patch_embed1?\.", "stem."),
    (r"^pos_embed1$", "stem.position"),
    (r"^patch_embed(\d)\.", r"stages.{\1-1}.downsample."),
    (r"^pos_embed(\d)$", r"stages.{\1-1}.downsample.position"),
    (r"^block(\d)\.(.*\.dwconv)\.dwconv\.", r"stages.{\1-1}.blocks.\2."),
    (r"^block(\d)\.", r"stages.{\1-1}.blocks."),
    (r"^norm(\d)\.", r"stages.{\1-1}.norm."),
)
# DeiT, ViT, and ViT as MAE saves it, with its decoder.
DEIT_RULES: Rules = (
    (r"^decoder_|^mask_token$|^dist_token$", None),
    (r"^patch_embed\.", "stem."),
    (r"^pos_embed$", "stem.position"),
    (r"^cls_token$", "stem.cls_token"),
    (r"^blocks\.(\d+)\.", r"stages.\1.blocks.0."),
)
# MILA and H-ViT³, whose stems differ in the names of their layers only; the merging ends a stage there.
CONV_STEM = ("shrink", "conv1", "conv2", "expand", "reduce")
CONV_PYRAMID_RULES: Rules = (
    (r"rope\.rotations$", None),  # a buffer, recomputed for any grid
    (r"^(stem\.\w+)\.conv\.", r"\1.linear."),
    (r"^(stem\.\w+)\.norm\.", r"\1.bn."),
    (r"^layers\.(\d+)\.downsample\.conv\.0\.conv\.", r"stages.{\1+1}.downsample.expand."),
    (r"^layers\.(\d+)\.downsample\.conv\.1\.conv\.", r"stages.{\1+1}.downsample.conv."),
    (r"^layers\.(\d+)\.downsample\.conv\.2\.conv\.", r"stages.{\1+1}.downsample.reduce."),
    (r"^layers\.(\d+)\.downsample\.conv\.2\.norm\.", r"stages.{\1+1}.downsample.norm."),
    (r"^layers\.", "stages."),
    (r"^norm\.", "stages.3.norm."),
)
