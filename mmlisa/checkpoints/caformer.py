"""timm's CAFormer weights as a start for iViT."""

import re
from collections.abc import Mapping

from torch import Tensor

# timm's name -> iViT's, in this order.
_NAMES = (
    (r"^stem\.", "downsamples.0."),
    (r"^stages\.(\d+)\.downsample\.", r"downsamples.\1."),
    (r"^stages\.(\d+)\.blocks\.", r"stages.\1."),
    (r"\.token_mixer\.act1\.", ".token_mixer.act."),
)


def convert_caformer(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """``caformer_s18`` / ``_s36`` / ``_m36`` of timm -> ``iViT('tiny')`` / ``('small')`` / ``('base')``.

    The head mixing of interactive attention is not in these files and starts at the identity; the output norms start fresh.
    CAFormer's classifier is left out.

    Raises:
        ValueError: not a CAFormer: no stem, or pooling and convolutions where attention belongs.
    """
    if "stem.conv.weight" not in state_dict or not any(".token_mixer.qkv." in name for name in state_dict):
        raise ValueError(
            f"not a CAFormer of timm: it has no 'stem.conv.weight' and '….token_mixer.qkv.weight' but {sorted(state_dict)[:5]}, …"
        )
    converted = {}
    for name, tensor in state_dict.items():
        if name.startswith("head."):
            continue
        for pattern, replacement in _NAMES:
            name = re.sub(pattern, replacement, name)
        # Pointwise convolutions are linear layers here.
        converted[name] = tensor.flatten(1) if tensor.ndim == 4 and tensor.shape[2:] == (1, 1) else tensor
    return converted
