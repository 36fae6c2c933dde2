"""timm's CAFormer weights as a start for iViT."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from mmlisa.models.backbones import iViT

from .conversion import Conversion, Rules, apply_rules, unwrap

_RULES: Rules = (
    (r"^stages\.(\d+)\.blocks\.(\d+)\.token_mixer\.act1\.", r"backbone.stages.\1.blocks.\2.token_mixer.act."),
    (r"^(stem|stages)\.", r"backbone.\1."),
    (r"^head\.norm\.", "head.pre_norm."),
    (r"^head\.fc\.", "head."),
)
_HEAD_KEYS = tuple(
    f"head.{layer}.{kind}" for layer in ("pre_norm", "fc1", "norm", "fc2") for kind in ("weight", "bias")
)


def convert_caformer(checkpoint: Mapping[str, Any], *, ema: bool = False) -> Conversion:
    """``caformer_s18``, ``_s36``, ``_m36`` of timm -> iViT-T, -S, -B.

    The head mixing of interactive attention is in no CAFormer and starts at the identity.

    Args:
        checkpoint: what the file holds: the state dict itself or ``{'model' | 'state_dict': state_dict}``.
        ema: take ``state_dict_ema``, the averaged weights.

    Returns:
        The state dict of a classifier with ``Conversion.backbone``, global average pooling and ``MlpClsHead`` with
        ``pre_norm=True, activation='SquaredReLU'``.

    Raises:
        ValueError: no CAFormer of one of the three sizes; anything of the backbone missing or of another shape.
    """
    theirs = unwrap(checkpoint, ema)
    if "stem.conv.weight" not in theirs or not any(".token_mixer.qkv." in name for name in theirs):
        raise ValueError(
            f"not a CAFormer in timm's layout: it holds {len(theirs)} tensors, {', '.join(sorted(theirs)[:5])}, …"
        )
    ours = {apply_rules(_RULES, name): _linear(tensor) for name, tensor in theirs.items()}
    found = dict(
        depths=tuple(
            len({n.split(".")[4] for n in ours if n.startswith(f"backbone.stages.{i}.blocks.")}) for i in range(4)
        ),
        channels=tuple(
            len(ours[name]) for name in (f"backbone.stages.{i}.blocks.0.norm1.weight" for i in range(4)) if name in ours
        ),
    )
    archs = iViT.arch_settings
    fitting = [name for name, arch in archs.items() if all(arch[key] == value for key, value in found.items())]
    if not fitting:
        sizes = {name: {key: arch[key] for key in found} for name, arch in archs.items()}
        raise ValueError(f"a CAFormer of {found} has the size of no iViT: {sizes}")
    config = dict(type="mmlisa.iViT", arch=fitting[0], out_indices=(3,), output_norm=False)
    with torch.device("meta"):
        backbone = iViT(fitting[0], out_indices=(3,), output_norm=False).state_dict()
    wanted = {f"backbone.{name}": tensor.shape for name, tensor in backbone.items()}
    untrained = tuple(name for name in wanted if ".mix_" in name)
    wrong = [
        name for name in wanted if name not in untrained and (name not in ours or ours[name].shape != wanted[name])
    ]
    if wrong:
        raise ValueError(
            f"{len(wrong)} of {len(wanted)} tensors are missing or of another shape: {', '.join(wrong[:5])}, …"
        )
    state_dict = {name: ours.pop(name) for name in (*wanted, *_HEAD_KEYS) if name in ours}
    missing = tuple(name for name in _HEAD_KEYS if name not in state_dict)
    return Conversion(config, state_dict, False, tuple(ours), untrained, missing)


def _linear(tensor: Tensor) -> Tensor:
    """Pointwise convolutions are linear layers here."""
    return tensor.flatten(1) if tensor.ndim == 4 and tensor.shape[2:] == (1, 1) else tensor
