"""Names that mmdetection, mmsegmentation and mmpretrain give the weights of Swin, PVT, PVTv2, DeiT and ViT."""

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
_SIGNATURES: tuple[tuple[str, Rules], ...] = (
    ("stages.0.blocks.0.attn.w_msa.qkv.weight", _SWIN),
    ("layers.0.1.0.pos_embed", _PVT_V1),
    ("layers.0.1.0.attn.attn.in_proj_weight", _PVT),
    ("layers.0.ln1.weight", _VIT),
)


def authors_names(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a backbone's weights as the authors of the network name them; other weights as they are.

    The libraries' own converters do the reverse (``swin_converter`` and ``pvt_convert`` in mmdet).
    """
    rules = next((rules for signature, rules in _SIGNATURES if signature in state), ())
    named = {apply_rules(rules, name): tensor for name, tensor in state.items()}
    for name in list(named):
        if rules is _SWIN and ".downsample." in name:
            named[name] = _merged_by_slicing(named[name])
        if rules in (_PVT, _PVT_V1) and ".attn.qkv." in name:
            joint = named.pop(name)
            query, key_value = joint.split([len(joint) // 3, len(joint) // 3 * 2])
            named |= {name.replace(".qkv.", ".q."): query, name.replace(".qkv.", ".kv."): key_value}
    return named


def _merged_by_slicing(tensor: Tensor) -> Tensor:
    """Reorder the channels of a patch merging, ``[..., 4C]``.

    ``nn.Unfold`` has the channel first, then the pixel by rows; Swin's slices have the pixel first, by columns.
    """
    return tensor.unflatten(-1, (-1, 2, 2)).permute(*range(tensor.ndim - 1), -1, -2, -3).flatten(-3)
