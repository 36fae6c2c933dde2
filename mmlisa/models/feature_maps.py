"""Channels and strides of the maps that a backbone returns, computed on the meta device."""

from collections.abc import Sequence
from typing import Any

import torch

from mmlisa.errors import UserError
from mmlisa.models import backbones
from mmlisa.models.backbones.base import Backbone
from mmlisa.models.timm_backbone import TimmBackbone


def backbone_class(name: str) -> type[Backbone] | type[TimmBackbone]:
    """Return the backbone registered as ``name``, with or without ``mmlisa.`` before it."""
    name = name.removeprefix("mmlisa.")
    if name == "TimmBackbone":
        return TimmBackbone
    if name not in backbones.__all__:
        raise UserError(f"backbone is {name!r}; it must be one of {sorted([*backbones.__all__, 'TimmBackbone'])}")
    return getattr(backbones, name)


def channels(
    backbone: str, arch: str | dict[str, Any] | None = None, out_indices: Sequence[int] | None = None, **options: Any
) -> list[int]:
    """Return a neck's ``in_channels`` for ``dict(type=backbone, arch=arch, out_indices=out_indices, **options)``.

    ``arch`` and ``out_indices`` are the backbone's defaults where None.
    """
    options |= {key: value for key, value in dict(arch=arch, out_indices=out_indices).items() if value is not None}
    with torch.device("meta"):
        return list(backbone_class(backbone)(**options).feature_channels)


def strides(
    backbone: str, arch: str | dict[str, Any] | None = None, out_indices: Sequence[int] | None = None, **options: Any
) -> list[int]:
    """Return a head's ``strides``, as :func:`channels` a neck's ``in_channels``."""
    options |= {key: value for key, value in dict(arch=arch, out_indices=out_indices).items() if value is not None}
    with torch.device("meta"):
        return list(backbone_class(backbone)(**options).feature_strides)
