"""Names that mmdetection, mmsegmentation and mmpretrain give the weights of Swin, PVT, PVTv2, DeiT, ViT, LeViT and MViTv2."""

import re
from collections.abc import Mapping

from torch import Tensor

from .rules import Rules, apply_rules

_MLP: Rules = ((r"\.ffn\.layers\.0\.0\.", ".mlp.fc1."), (r"\.ffn\.layers\.1\.", ".mlp.fc2."))
_JOINT: Rules = ((r"\.attn\.attn\.in_proj_", ".attn.qkv."), (r"\.attn\.attn\.out_proj\.", ".attn.proj."))
_SWIN: Rules = (
    (r"^patch_embed\.projection\.", "patch_embed.proj."),
    (r"^stages\.", "layers."),
    (r"\.w_msa\.", "."),
    *_MLP,
)
_PVT: Rules = (
    (r"^layers\.(\d)\.0\.projection\.", r"patch_embed{\1+1}.proj."),
    (r"^layers\.(\d)\.0\.norm\.", r"patch_embed{\1+1}.norm."),
    (r"^layers\.(\d)\.1\.0\.pos_embed$", r"pos_embed{\1+1}"),
    (r"^layers\.(\d)\.1\.", r"block{\1+1}."),
    (r"^layers\.(\d)\.2\.", r"norm{\1+1}."),
    (r"\.ffn\.layers\.0\.", ".mlp.fc1."),
    (r"\.ffn\.layers\.1\.", ".mlp.dwconv.dwconv."),
    (r"\.ffn\.layers\.[34]\.", ".mlp.fc2."),
    *_JOINT,
)
# The list of PVT's blocks begins with the position table.
_PVT_V1: Rules = (*_PVT, (r"^block(\d)\.(\d+)\.", r"block\1.{\2-1}."))
_VIT: Rules = (
    (r"^patch_embed\.projection\.", "patch_embed.proj."),
    (r"^layers\.(\d+)\.ln(\d)\.", r"blocks.\1.norm\2."),
    (r"^layers\.", "blocks."),
    (r"^ln1\.", "norm."),
    *_JOINT,
    *_MLP,
)
# One list per stage: what leads into it, then attention and MLP of each block in turn.
_LEVIT: Rules = (
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
_MVITV2: Rules = (
    (r"^patch_embed\.projection\.", "patch_embed.proj."),
    (r"^(stages\.\d+\.blocks\.\d+)\.proj\.", r"\1.shortcut_proj_attn."),
)
_SIGNATURES: tuple[tuple[str, Rules], ...] = (
    ("stages.0.blocks.0.attn.w_msa.qkv.weight", _SWIN),
    ("layers.0.1.0.pos_embed", _PVT_V1),
    ("layers.0.1.0.attn.attn.in_proj_weight", _PVT),
    ("layers.0.ln1.weight", _VIT),
    ("stages.0.0.block.qkv.linear.weight", _LEVIT),
    ("blocks.0.attn.pool_q.weight", _MVITV2),
)


def authors_names(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a backbone's weights as the authors of the network name them; other weights as they are.

    The libraries' own converters do the reverse (``swin_converter`` and ``pvt_convert`` in mmdet).
    """
    rules = next((rules for signature, rules in _SIGNATURES if signature in state), ())
    if rules is _MVITV2:
        rules = (*_stages_of_mvit(state), *rules)
    named = {apply_rules(rules, name): tensor for name, tensor in state.items()}
    for name in list(named):
        if rules is _SWIN and ".downsample." in name:
            named[name] = _merged_by_slicing(named[name])
        if rules in (_PVT, _PVT_V1) and ".attn.qkv." in name:
            joint = named.pop(name)
            query, key_value = joint.split([len(joint) // 3, len(joint) // 3 * 2])
            named |= {name.replace(".qkv.", ".q."): query, name.replace(".qkv.", ".kv."): key_value}
    return named


def _stages_of_mvit(state: Mapping[str, Tensor]) -> Rules:
    """Divide the single list of blocks into stages; the first block of a stage projects its input to more channels."""
    numbers = sorted({int(name.split(".")[1]) for name in state if re.match(r"blocks\.\d+\.", name)})
    rules, start, stage = [], 0, 0
    for number in numbers:
        if f"blocks.{number}.proj.weight" in state:
            start, stage = number, stage + 1
        rules.append((rf"^blocks\.{number}\.", f"stages.{stage}.blocks.{number - start}."))
    return tuple(rules)


def _merged_by_slicing(tensor: Tensor) -> Tensor:
    """Reorder the channels of a patch merging, ``[..., 4C]``.

    ``nn.Unfold`` has the channel first, then the pixel by rows; Swin's slices have the pixel first, by columns.
    """
    return tensor.unflatten(-1, (-1, 2, 2)).permute(*range(tensor.ndim - 1), -1, -2, -3).flatten(-3)
