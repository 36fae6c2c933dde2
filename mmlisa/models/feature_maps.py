"""Channels and strides of the maps that a backbone returns, computed on the meta device."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from mmlisa.errors import UserError
from mmlisa.models import backbones
from mmlisa.models.backbones.base import Backbone
from mmlisa.models.timm_backbone import TimmBackbone


class FeatureMap(NamedTuple):
    """One map ``[B, channels, H / stride, W / stride]`` of a backbone."""

    stage: int
    channels: int
    stride: int


def backbone_class(name: str) -> type[Backbone] | type[TimmBackbone]:
    """Return the backbone registered as ``name``, with or without ``mmlisa.`` before it."""
    name = name.removeprefix("mmlisa.")
    if name == "TimmBackbone":
        return TimmBackbone
    if name not in backbones.__all__:
        raise UserError(f"backbone is {name!r}; it must be one of {sorted([*backbones.__all__, 'TimmBackbone'])}")
    return getattr(backbones, name)


def feature_maps(
    backbone: str, arch: str | dict[str, Any] | None = None, out_indices: Sequence[int] | None = None, **options: Any
) -> tuple[FeatureMap, ...]:
    """Return the maps of ``dict(type=backbone, arch=arch, out_indices=out_indices, **options)``; nothing is allocated.

    ``arch`` and ``out_indices`` are the backbone's defaults where None.
    """
    options |= {key: value for key, value in dict(arch=arch, out_indices=out_indices).items() if value is not None}
    with torch.device("meta"):
        built = backbone_class(backbone)(**options)
    maps = zip(built.out_indices, built.feature_channels, built.feature_strides, strict=True)
    return tuple(FeatureMap(*values) for values in maps)


def channels(
    backbone: str, arch: str | dict[str, Any] | None = None, out_indices: Sequence[int] | None = None, **options: Any
) -> list[int]:
    """Return a neck's ``in_channels``; see :func:`feature_maps`."""
    return [one.channels for one in feature_maps(backbone, arch, out_indices, **options)]


def strides(
    backbone: str, arch: str | dict[str, Any] | None = None, out_indices: Sequence[int] | None = None, **options: Any
) -> list[int]:
    """Return a head's ``strides``; see :func:`feature_maps`."""
    return [one.stride for one in feature_maps(backbone, arch, out_indices, **options)]
