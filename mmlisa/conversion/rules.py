"""Tables that map the names of published necks and heads to those of this package and of OpenMMLab, and how tables apply."""

import re

from mmlisa.models.published import PADDLE_NORM, Names, Rules

HEAD: Rules = (
    (r"^head\.(?:fc\.|layers\.head\.)?(weight|bias)$", r"head.fc.\1"),  # mmpretrain's ViT has layers
    (r"^head_dist\.", None),
    (r"^head\.norm\.", "head.pre_norm."),  # CAFormer's, and its hidden layer
    (r"^head\.fc\.(fc1|norm|fc2)\.", r"head.\1."),
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
    *PADDLE_NORM,
)
PADDLE_HEAD: Rules = (  # PicoHead with shared towers, of release 2021.10
    (r"^head\.p\d_feat\.scale_reg$", None),  # scales of the class it inherits from, never applied
    (r"^head\.distribution_project\.", "bbox_head.integral."),
    (r"^head\.conv_feat\.cls_conv_(d|p)w(\d+)\.(\d+)\.", r"bbox_head.towers.\2.\3.\1w."),
    (r"^head\.head_cls(\d+)\.", r"bbox_head.predictors.\1."),
    (r"\.dw\.", ".depthwise_conv."),
    (r"\.pw\.", ".pointwise_conv."),
    (r"\.norm\.", ".bn."),
    *PADDLE_NORM,
)


def apply_rules(rules: Rules, name: str) -> Names:
    """Return the new name after all matching rules in turn; ``{1+1}`` in it is a sum. None drops the weight."""
    for pattern, new in rules:
        if not re.search(pattern, name):
            continue
        if new is None:
            return None
        if isinstance(new, tuple):
            later = rules[rules.index((pattern, new)) + 1 :]
            return tuple(text and apply_rules(later, re.sub(pattern, text, name)) for text in new)
        name = re.sub(pattern, new, name)
        name = re.sub(r"\{(\d+)([+-]\d+)\}", lambda match: str(int(match[1]) + int(match[2])), name)
    return name
