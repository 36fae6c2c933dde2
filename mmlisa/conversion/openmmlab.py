"""The names under which mmdetection, mmsegmentation and mmpretrain save Swin, PVT, PVTv2, DeiT, ViT, LeViT and MViTv2.

The tables map them to the names of the networks' authors; :mod:`.families` joins them with the authors' tables. The functions
prepare what renaming alone cannot express. The libraries' own converters do the reverse (``swin_converter`` and
``pvt_convert`` in mmdet).
"""

import re
from collections.abc import Mapping

from torch import Tensor

from .rules import Rules

_MLP: Rules = ((r"\.ffn\.layers\.0\.0\.", ".mlp.fc1."), (r"\.ffn\.layers\.1\.", ".mlp.fc2."))
_JOINT: Rules = ((r"\.attn\.attn\.in_proj_", ".attn.qkv."), (r"\.attn\.attn\.out_proj\.", ".attn.proj."))
SWIN: Rules = (
    (r"^patch_embed\.projection\.", "patch_embed.proj."),
    (r"^stages\.", "layers."),
    (r"\.w_msa\.", "."),
    *_MLP,
)
PVT_V2: Rules = (
    (r"^layers\.(\d)\.0\.projection\.", r"patch_embed{\1+1}.proj."),
    (r"^layers\.(\d)\.0\.norm\.", r"patch_embed{\1+1}.norm."),
    (r"^layers\.(\d)\.1\.0\.pos_embed$", r"pos_embed{\1+1}"),
    (r"^layers\.(\d)\.1\.", r"block{\1+1}."),
    (r"^layers\.(\d)\.2\.", r"norm{\1+1}."),
    (r"\.ffn\.layers\.0\.", ".mlp.fc1."),
    (r"\.ffn\.layers\.1\.", ".mlp.dwconv.dwconv."),
    (r"\.ffn\.layers\.[34]\.", ".mlp.fc2."),
    (r"\.attn\.attn\.(q|kv)_", r".attn.\1."),
    *_JOINT,
)
# The list of PVT's blocks begins with the position table.
PVT: Rules = (*PVT_V2, (r"^block(\d)\.(\d+)\.", r"block\1.{\2-1}."))
VIT: Rules = (
    (r"^patch_embed\.projection\.", "patch_embed.proj."),
    (r"^layers\.(\d+)\.ln(\d)\.", r"blocks.\1.norm\2."),
    (r"^layers\.", "blocks."),
    (r"^ln1\.", "norm."),
    *_JOINT,
    *_MLP,
)
# One list per stage: what leads into it, then attention and MLP of each block in turn.
LEVIT: Rules = (
    *((rf"^patch_embed\.patch_embed\.{2 * i}\.", f"stem.conv{i + 1}.") for i in range(4)),
    (r"^(stem\.conv\d)\.conv\.", r"\1.linear."),
    (r"^stages\.([12])\.0\.", r"stages.\1.downsample.attn_downsample."),
    (r"^stages\.([12])\.1\.block\.", r"stages.\1.downsample.mlp."),
    (r"^stages\.([12])\.(\d+)\.", r"stages.\1.{\2-2}."),
    *((rf"^stages\.(\d)\.{2 * i}\.block\.", rf"stages.\1.blocks.{i}.attn.") for i in range(4)),
    *((rf"^stages\.(\d)\.{2 * i + 1}\.block\.", rf"stages.\1.blocks.{i}.mlp.") for i in range(4)),
    (r"\.(q|proj)\.1\.", r".\1.ln."),
    (r"\.linear(\d)\.", r".ln\1."),
)
MVITV2: Rules = (
    (r"^patch_embed\.projection\.", "patch_embed.proj."),
    (r"^(stages\.\d+\.blocks\.\d+)\.proj\.", r"\1.shortcut_proj_attn."),
)


def merge_by_slicing(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Reorder the channels of Swin's patch merging, ``[..., 4C]``.

    ``nn.Unfold`` has the channel first, then the pixel by rows; the authors' slices have the pixel first, by columns.
    """

    def reorder(tensor: Tensor) -> Tensor:
        return tensor.unflatten(-1, (-1, 2, 2)).permute(*range(tensor.ndim - 1), -1, -2, -3).flatten(-3)

    return {name: reorder(tensor) if ".downsample." in name else tensor for name, tensor in state.items()}


def split_projections(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Split PVT's joint projection into the authors' two, of the query and of key and value."""
    split = {}
    for name, tensor in state.items():
        if ".in_proj_" in name:
            third = len(tensor) // 3
            split[name.replace(".in_proj_", ".q_")] = tensor[:third]
            split[name.replace(".in_proj_", ".kv_")] = tensor[third:]
        else:
            split[name] = tensor
    return split


def divide_into_stages(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Divide MViTv2's single list of blocks into stages; the first block of a stage projects its input to more channels."""
    places, start, stage = {}, 0, 0
    for number in sorted({int(name.split(".")[1]) for name in state if name.startswith("blocks.")}):
        if f"blocks.{number}.proj.weight" in state:
            start, stage = number, stage + 1
        places[str(number)] = f"stages.{stage}.blocks.{number - start}."
    return {re.sub(r"^blocks\.(\d+)\.", lambda found: places[found[1]], name): t for name, t in state.items()}
