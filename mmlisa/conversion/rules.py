"""Tables, one per family, that map the names of published weights to the names in this package."""

import re

# (pattern of the published name, our name). All matching rules apply in turn. None drops the weight. Several names split the
# tensor into equal parts along its first axis.
Names = str | None | tuple[str | None, ...]
Rules = tuple[tuple[str, Names], ...]

HEAD: Rules = (
    (r"^head\.(?:fc\.|layers\.head\.)?(weight|bias)$", r"head.fc.\1"),  # mmpretrain's ViT has layers
    (r"^head_dist\.", None),
    (r"^head\.norm\.", "head.pre_norm."),  # CAFormer's, and its hidden layer
    (r"^head\.fc\.(fc1|norm|fc2)\.", r"head.\1."),
)
SWIN: Rules = (
    (r"relative_position_index$|attn_mask$", None),  # buffers, rebuilt
    (r"^patch_embed\.", "stem."),
    (r"^layers\.(\d+)\.blocks\.", r"stages.\1.blocks."),
    (r"^norm\.", "norm3."),
)
# timm puts Swin's merging at the head of a stage, the official code at the end of the one before.
SWIN_TIMM: Rules = ((r"^layers\.(\d+)\.downsample\.", r"stages.\1.downsample."), *SWIN)
SWIN_OFFICIAL: Rules = ((r"^layers\.(\d+)\.downsample\.", r"stages.{\1+1}.downsample."), *SWIN)
PVT: Rules = (
    (r"^cls_token$", None),  # PVT's, which FLatten-PVT does not have
    (r"^patch_embed1?\.", "stem."),
    (r"^pos_embed1$", "stem.position"),
    (r"^patch_embed(\d)\.", r"stages.{\1-1}.downsample."),
    (r"^pos_embed(\d)$", r"stages.{\1-1}.downsample.position"),
    (r"^block(\d)\.(.*\.dwconv)\.dwconv\.", r"stages.{\1-1}.blocks.\2."),
    (r"^block(\d)\.", r"stages.{\1-1}.blocks."),
    (r"^norm(\d)\.", r"stages.{\1-1}.norm."),
)
CSWIN: Rules = (
    (r"^stage1_conv_embed\.0\.", "stem.proj."),
    (r"^stage1_conv_embed\.2\.", "stem.norm."),
    (r"^merge(\d)\.conv\.", r"stages.\1.downsample.proj."),
    (r"^merge(\d)\.norm\.", r"stages.\1.downsample.norm."),
    (r"^stage(\d)\.(\d+)\.(qkv|proj)\.", r"stages.{\1-1}.blocks.\2.attn.\3."),
    (r"^stage(\d)\.(\d+)\.attns\.(\d)\.get_v\.", r"stages.{\1-1}.blocks.\2.attn.lepe.\3."),
    (r"^stage(\d)\.(\d+)\.attns\.0\.", r"stages.{\1-1}.blocks.\2.attn."),
    (r"^stage(\d)\.", r"stages.{\1-1}.blocks."),
    (r"^norm\.", "norm3."),
)
# DeiT, ViT, and ViT as MAE saves it, with its decoder.
DEIT: Rules = (
    (r"^decoder_|^mask_token$|^dist_token$", None),
    (r"^patch_embed\.", "stem."),
    (r"^pos_embed$", "stem.position"),
    (r"^cls_token$", "stem.cls_token"),
    (r"^blocks\.(\d+)\.", r"stages.\1.blocks.0."),
)
# MILA and H-ViT³, whose stems differ in the names of their layers only; the merging ends a stage there.
_CONV_PYRAMID: Rules = (
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
_STEM = ("shrink", "conv1", "conv2", "expand", "reduce")
MILA: Rules = (
    *(
        (rf"^patch_embed\.{old}\.(conv|norm)\.", rf"stem.{new}.\1.")
        for old, new in zip(("conv1", r"conv2\.0", r"conv2\.1", r"conv3\.0", r"conv3\.1"), _STEM, strict=True)
    ),
    *_CONV_PYRAMID,
)
HVIT3: Rules = (
    *((rf"^patch_embed\.conv\.{i}\.", f"stem.{new}.") for i, new in enumerate(_STEM)),
    (r"\.mlp\.dwc\.", ".mlp.dwconv."),
    *_CONV_PYRAMID,
)
CAFORMER: Rules = ((r"\.token_mixer\.act1\.", ".token_mixer.act."),)
LEVIT: Rules = (
    (r"attention_bias_idxs$", None),  # a buffer of mmpretrain's, recomputed
    *((rf"^stem\.conv{i + 1}\.", f"stem.{2 * i}.") for i in range(4)),  # hard-swish between them
    (r"^(stages\.\d+\.downsample)\.attn_downsample\.attention_biases$", r"\1.attn.bias.attention_biases"),
    (r"^(stages\.\d+\.downsample)\.attn_downsample\.(q|proj)\.ln\.", r"\1.attn.\2."),
    (r"^(stages\.\d+\.downsample)\.attn_downsample\.", r"\1.attn."),
    (r"\.attn\.attention_biases$", ".attn.bias.attention_biases"),
    (r"\.attn\.proj\.ln\.linear\.", ".attn.proj."),
    (r"\.attn\.proj\.ln\.bn\.", ".norm."),
)
MVITV2: Rules = (
    (r"^patch_embed\.", "stem."),
    (r"^norm\.", "norm3."),
    # The first block of a stage, which has stride 2, is the stage's downsample in this package.
    (r"^stages\.([1-9])\.blocks\.0\.", r"stages.\1.downsample."),
    (r"^stages\.([1-9])\.blocks\.(\d+)\.", r"stages.\1.blocks.{\2-1}."),
    (r"\.attn\.pool_(.)\.weight$", r".attn.pool_\1.conv.weight"),
    (r"\.attn\.norm_(.)\.", r".attn.pool_\1.norm."),
    (r"\.attn\.rel_pos_", ".attn.bias.rel_pos_"),
)
LCNET: Rules = (
    (r"^conv_stem\.", "stem.0."),
    (r"^bn1\.", "stem.1."),
    (r"^blocks\.0\.0\.", "stem.3."),
    (r"^blocks\.([123])\.", r"stages.{\1-1}.downsample."),
    (r"^blocks\.4\.(\d+)\.", r"stages.2.downsample.{\1+2}."),
    (r"^blocks\.5\.", "stages.3.downsample."),
)

# --- PaddleDetection and PaddleClas ---

_PADDLE_NORM: Rules = ((r"\._mean$", ".running_mean"), (r"\._variance$", ".running_var"))
_PADDLE_SE: Rules = ((r"\.conv1\.", ".conv_reduce."), (r"\.conv2\.", ".conv_expand."))
PADDLE_LCNET: Rules = (
    (r"^conv1\.conv\.", "stem.0."),
    (r"^conv1\.bn\.", "stem.1."),
    (r"^blocks2\.0\.", "stem.3."),
    (r"^blocks(\d)\.", r"stages.{\1-3}.downsample."),
    (r"\.dw_conv\.conv\.", ".conv_dw."),
    (r"\.dw_conv\.bn\.", ".bn1."),
    (r"\.pw_conv\.conv\.", ".conv_pw."),
    (r"\.pw_conv\.bn\.", ".bn2."),
    (r"\.se\.conv1\.", ".se.conv_reduce."),
    (r"\.se\.conv2\.", ".se.conv_expand."),
    *_PADDLE_NORM,
)
PADDLE_ESNET: Rules = (
    (r"^_conv1\.", "stem.0."),
    (r"^(\d)_(\d+)\.", r"stages.{\1-2}.downsample.{\2-1}."),
    (r"\._conv_dw_1\.", ".branch1.0."),
    (r"\._conv_linear_1\.", ".branch1.1."),
    (r"\._conv_pw_2\.", ".branch2.0."),
    (r"\._conv_dw_2\.", ".branch2.1."),
    (r"(downsample\.0)\._se\.", r"\1.branch2.2."),
    (r"\._conv_linear_2\.", ".branch2.3."),
    (r"\._conv_dw_mv1\.", ".merge.0."),
    (r"\._conv_pw_mv1\.", ".merge.1."),
    (r"\._conv_pw\.", ".pointwise."),
    (r"\._conv_dw\.", ".depthwise."),
    (r"\._se\.", ".se."),
    (r"\._conv_linear\.", ".linear."),
    (r"\._conv\.", ".0."),
    (r"\._batch_norm\.", ".1."),
    *_PADDLE_SE,
    *_PADDLE_NORM,
)
_PADDLE_SEPARABLE: Rules = (
    (r"\.(?:dw_conv\.conv|dwconv)\.", ".depthwise_conv.conv."),
    (r"\.(?:dw_conv\.bn|bn1)\.", ".depthwise_conv.bn."),
    (r"\.(?:pw_conv\.conv|pwconv)\.", ".pointwise_conv.conv."),
    (r"\.(?:pw_conv\.bn|bn2)\.", ".pointwise_conv.bn."),
)
PADDLE_PAN: Rules = (  # CSP-PAN and LC-PAN
    (r"^neck\.conv_t\.convs\.", "neck.transforms."),
    (r"^neck\.top_down_blocks\.", "neck.top_down."),
    (r"^neck\.bottom_up_blocks\.", "neck.bottom_up."),
    (r"^neck\.first_top_conv\.", "neck.top.0."),
    (r"^neck\.second_top_conv\.", "neck.top.1."),
    (r"\.main_conv\.", ".main.0."),
    (r"\.blocks\.0\.conv1\.", ".main.1."),
    (r"\.blocks\.0\.conv2\.", ".main.2."),
    (r"\.short_conv\.", ".short."),
    (r"\.final_conv\.", ".merge."),
    *_PADDLE_SEPARABLE,
    *_PADDLE_NORM,
)
PADDLE_HEAD: Rules = (  # PicoHead with shared towers, of release 2021.10
    (r"^head\.p\d_feat\.scale_reg$", None),  # scales of the class it inherits from, never applied
    (r"^head\.distribution_project\.", "bbox_head.integral."),
    (r"^head\.conv_feat\.cls_conv_(d|p)w(\d+)\.(\d+)\.", r"bbox_head.towers.\2.\3.\1w."),
    (r"^head\.head_cls(\d+)\.", r"bbox_head.predictors.\1."),
    (r"\.dw\.", ".depthwise_conv."),
    (r"\.pw\.", ".pointwise_conv."),
    (r"\.norm\.", ".bn."),
    *_PADDLE_NORM,
)

# --- hosts of LiSANet. Of their attention, only value and output are taken: LiSA normalises query and key, the hosts do not ---

PVT_TO_LISANET: Rules = (
    (r"\.attn\.(q|sr|norm)\.", None),
    (r"^(.*\.attn\.)kv\.(.*)$", (None, r"\1v.\2")),
    *PVT,
    (r"^stages\.(\d)\.norm\.", r"norm\1."),
)
CAFORMER_TO_LISANET: Rules = (
    (r"\.(res_scale\d|act\d?)\.", None),
    (r"^(.*)\.token_mixer\.qkv\.(.*)$", (None, None, r"\1.attn.v.\2")),
    (r"^stem\.conv\.", "stem.proj."),
    (r"^(stages\.\d+\.downsample)\.conv\.", r"\1.proj."),
    (r"^(stages\.\d+\.downsample)\.norm\.", None),  # before the convolution there, after it here
    (r"\.token_mixer\.", ".attn."),
)


def apply_rules(rules: Rules, name: str) -> Names:
    """Return the new name after all matching rules in turn; ``{1+1}`` in it is a sum. None drops the weight."""
    for pattern, new in rules:
        if not re.search(pattern, name):
            continue
        if new is None:
            return None
        if isinstance(new, tuple):
            rest = rules[rules.index((pattern, new)) + 1 :]
            return tuple(part and apply_rules(rest, re.sub(pattern, part, name)) for part in new)
        name = re.sub(pattern, new, name)
        name = re.sub(r"\{(\d+)([+-]\d+)\}", lambda match: str(int(match[1]) + int(match[2])), name)
    return name
