"""Official FLatten weights, and those of its hosts, as mmpretrain classifiers of this package."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isqrt
from typing import Any

import torch
from torch import Tensor

from mmlisa.models.backbones import FLattenCSwin, FLattenDeiT, FLattenPVT, FLattenPVTv2, FLattenSwin
from mmlisa.models.backbones.base import Backbone

from .conversion import Conversion, unwrap
from .rules import CSWIN, DEIT, HEAD, PVT, SWIN, Rules, apply_rules


@dataclass(frozen=True)
class _Family:
    """How the files of a family are recognised and read."""

    backbone: type[Backbone]
    signature: tuple[str, ...]  # names that its files, and no others', have
    rules: Rules
    options: dict[str, Any] = field(default_factory=lambda: {"out_indices": (3,)})


# The hosts' spatial reduction has no place in linear attention.
_PVT: Rules = ((r"\.attn\.(sr|norm)\.", None), *PVT)
_FAMILIES = (
    _Family(FLattenSwin, ("patch_embed.proj.weight", "layers.0.blocks.0.norm1.weight"), SWIN),
    _Family(FLattenPVT, ("patch_embed1.proj.weight", "pos_embed1"), _PVT),
    _Family(FLattenPVTv2, ("block1.0.mlp.dwconv.dwconv.weight",), _PVT),
    _Family(FLattenPVTv2, ("stages.0.blocks.0.mlp.dwconv.weight", "stages.1.downsample.proj.weight"), _PVT),
    _Family(FLattenCSwin, ("stage1_conv_embed.0.weight", "merge1.conv.weight"), CSWIN),
    _Family(
        FLattenDeiT,
        ("cls_token", "pos_embed", "patch_embed.proj.weight", "blocks.0.attn.qkv.weight"),
        DEIT,
        {"out_type": "cls_token"},
    ),
)
# What the hosts lack, and the fresh values of FLatten's own initialisation stand in for.
_OWN = re.compile(r"\.attn\.(dwc\.\w+|scale|positional_encoding)$")
_HEAD_KEYS = ("head.fc.weight", "head.fc.bias")


def convert_flatten(checkpoint: Mapping[str, Any], *, ema: bool = False) -> Conversion:
    """Official FLatten-Swin, -PVT, -PVTv2 and -CSwin checkpoints, and plain ones of Swin, PVT, PVTv2 and DeiT (official or timm).

    Args:
        checkpoint: what the file holds: the state dict itself or ``{'model' | 'state_dict': state_dict}``.
        ema: take ``state_dict_ema``, the averaged weights.

    Returns:
        The state dict of a classifier whose backbone is ``Conversion.backbone``, followed by global average pooling (not for
        DeiT, whose class token it is) and a linear head.

    Raises:
        ValueError: a file of no known family or size, with those that are known; anything of the backbone missing or of another
            shape.
    """
    theirs = unwrap(checkpoint, ema)
    family = _recognise(theirs)
    ours, dropped = _rename(theirs, family)
    official = any(name.endswith(".attn.dwc.weight") for name in ours)
    config = {"type": f"mmlisa.{family.backbone.__name__}", **_architecture(family, ours), **family.options}
    options = {key: value for key, value in config.items() if key != "type"}
    with torch.device("meta"):
        wanted = family.backbone(**options).state_dict()
    head = {name: ours.pop(name) for name in _HEAD_KEYS if name in ours}
    if not official:
        _drop_class_position(ours, wanted)
    absent = [name for name in wanted if name not in ours]
    untrained = tuple(name for name in absent if not official and _OWN.search(name))
    if lost := [name for name in absent if name not in untrained]:
        raise ValueError(f"{_name(config)}: the file lacks {len(lost)} of {len(wanted)} keys: {', '.join(lost[:5])}, …")
    for name in wanted:
        if name in ours and ours[name].shape != wanted[name].shape:
            raise ValueError(
                f"{_name(config)}: {name} has shape {tuple(ours[name].shape)} in the file; "
                f"the model needs {tuple(wanted[name].shape)}"
            )
    dropped += [name for name in ours if name not in wanted]
    state_dict = {f"backbone.{name}": ours[name] for name in wanted if name in ours} | head
    missing = tuple(name for name in _HEAD_KEYS if name not in head)
    return Conversion(config, state_dict, official, tuple(dropped), untrained, missing)


def _name(config: dict[str, Any]) -> str:
    return f"{config['type']} {config['arch']!r}"


def _recognise(theirs: Mapping[str, Tensor]) -> _Family:
    for family in _FAMILIES:
        if all(name in theirs for name in family.signature):
            return family
    known = sorted({family.backbone.__name__ for family in _FAMILIES})
    raise ValueError(
        f"not a checkpoint of {', '.join(known)} or their hosts, in the official or timm's layout: it holds "
        f"{len(theirs)} tensors, {', '.join(sorted(theirs)[:5])}, …"
    )


def _rename(theirs: Mapping[str, Tensor], family: _Family) -> tuple[dict[str, Tensor], list[str]]:
    """Tensors by our names, and the names of those that were dropped."""
    ours: dict[str, Tensor] = {}
    dropped = []
    # timm puts Swin's merging at the head of a stage, the official code at the end of the one before.
    merging_after = "layers.0.downsample.norm.weight" in theirs
    rules = (
        (r"^layers\.(\d+)\.downsample\.", r"stages.{\1+1}.downsample." if merging_after else r"stages.\1.downsample."),
        *HEAD,
        *family.rules,
    )
    for name, tensor in theirs.items():
        new = apply_rules(rules, name)
        if new is None:
            dropped.append(name)
        else:
            ours[new] = tensor
    for name in [name for name in ours if ".attn.q." in name]:  # [q] and [k | v], one projection here
        key_value = name.replace(".attn.q.", ".attn.kv.")
        if key_value in ours:
            ours[name.replace(".attn.q.", ".attn.qkv.")] = torch.cat([ours.pop(name), ours.pop(key_value)])
    for name in [name for name in ours if ".attn.lepe.0." in name]:  # linear blocks have a single branch
        if re.sub(r"lepe\.0\.\w+$", "scale", name) in ours:
            ours[name.replace(".lepe.0.", ".lepe.")] = ours.pop(name)
    return ours, dropped


def _architecture(family: _Family, ours: Mapping[str, Tensor]) -> dict[str, Any]:
    """``arch`` by depths, widths, windows and positions."""
    archs = family.backbone.arch_settings
    position, stride = ours.get("stages.0.blocks.0.attn.positional_encoding"), 4
    if family.backbone is FLattenDeiT:
        found = dict(depth=_length(ours, "stages."), channels=ours["stem.cls_token"].shape[-1])
        stride = 16
    else:
        norms = [f"stages.{i}.blocks.0.norm1.weight" for i in range(_length(ours, "stages."))]
        found = dict(
            depths=tuple(_length(ours, f"stages.{i}.blocks.") for i in range(len(norms))),
            channels=tuple(len(ours[name]) for name in norms if name in ours),
        )
        table = ours.get("stages.3.blocks.0.attn.relative_position_bias_table")
        if table is not None:
            found["window_size"] = (isqrt(len(table)) + 1) // 2
    fitting = [name for name, arch in archs.items() if all(arch[key] == value for key, value in found.items())]
    if not fitting:
        sizes = {name: {key: arch[key] for key in found} for name, arch in archs.items()}
        raise ValueError(f"a {family.backbone.__name__} of {found} is none of its sizes: {sizes}")
    if position is None:
        return dict(arch=fitting[0])
    image_size = isqrt(position.shape[1]) * stride
    for name in fitting:
        if archs[name].get("image_size", 224) == image_size:
            return dict(arch=name)
    return dict(arch=fitting[0], image_size=image_size)


def _length(names: Mapping[str, Any], prefix: str) -> int:
    """How many numbers follow ``prefix`` in the names."""
    return len({name.removeprefix(prefix).split(".")[0] for name in names if name.startswith(prefix)})


def _drop_class_position(ours: dict[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    """Takes the class token's position out of PVT's last table."""
    for name, tensor in wanted.items():
        if name.endswith(".position") and name in ours and ours[name].shape[1] == tensor.shape[1] + 1:
            ours[name] = ours[name][:, 1:]
