"""Plain vision transformers (Touvron et al., "DeiT") around any attention operator."""

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mmlisa.errors import UserError
from mmlisa.models.attention import build_attention
from mmlisa.models.layers.blocks import Block
from mmlisa.models.layers.grids import PositionResize, PositionsOnLoad
from mmlisa.models.layers.tokens import PatchEmbed
from mmlisa.models.published import DEIT, DEIT_RULES, Network, Rules

from .base import Backbone, StageSize

OUT_TYPES = ("featmap", "cls_token")


class Stem(PositionsOnLoad, PatchEmbed):
    """Patch embedding with learned positions and an optional class token before the patches.

    The image is padded with zeros to whole patches; positions are interpolated to the grid at hand.
    """

    on_grid = ("position",)

    def __init__(
        self, in_channels: int, channels: int, patch_size: int, grid: Sequence[int], class_token: bool
    ) -> None:
        super().__init__(in_channels, channels, patch_size, patch_size, norm=nn.Identity())
        self.cls_token = nn.Parameter(torch.empty(1, 1, channels)) if class_token else None
        self.position = nn.Parameter(torch.empty(1, class_token + prod(grid), channels))
        self.resize = PositionResize(grid)
        for tensor in (self.cls_token, self.position):
            if tensor is not None:
                nn.init.trunc_normal_(tensor, std=0.02)

    def forward(self, image: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        """``[B, 3, H, W]`` -> ``[B, (1 +) N, C]`` and the grid of the N patches."""
        x, grid = super().forward(image)
        if self.cls_token is not None:
            x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1).to(x.dtype), x], dim=1)
        return x + self.resize(self.position, grid).to(x.dtype), grid


class PlainViT(Backbone):
    """Base of hosts with blocks of one width at one stride; each block is a stage, and its map has the network's last norm.

    The archs of some hosts set ``patch_size`` and ``class_token``; the defaults are 16 and True.

    Args:
        out_type: ``'featmap'``, or for classifiers ``'cls_token'``: tokens ``[B, C]`` in the place of maps.
        out_indices: blocks whose outputs are returned; the last by default, None for all.
    """

    def __init__(
        self,
        arch: str | dict[str, Any] | None = None,
        *,
        out_type: str = "featmap",
        out_indices: int | Sequence[int] | None = (-1,),
        **options: Any,
    ) -> None:
        super().__init__(arch, out_indices=out_indices, **options)
        self.out_type, self.num_extra_tokens = out_type, int(self.arch.get("class_token", True))
        out_types = OUT_TYPES[: 1 + self.num_extra_tokens]
        if out_type not in out_types:
            raise UserError(f"out_type={out_type!r}; it must be one of {out_types}")

    @classmethod
    def stage_sizes(cls, arch: dict[str, Any]) -> list[StageSize]:
        return [StageSize(arch["channels"], arch.get("patch_size", 16), 1)] * arch["depth"]

    def build_stem(self) -> nn.Module:
        channels, has_class_token = self.arch["channels"], self.arch.get("class_token", True)
        return Stem(self.in_channels, channels, self.stage_strides[0], self.stage_grid(0), has_class_token)

    def build_block(self, stage: int, index: int, drop_path: float, grid: tuple[int, ...]) -> nn.Module:
        arch, channels = self.arch, self.arch["channels"]
        attention = build_attention(self.attention, channels, arch["num_heads"], grid)
        ratio, conv = arch["mlp_ratio"], arch.get("mlp_conv")
        return Block(channels, attention, mlp_ratio=ratio, mlp_conv=conv, drop_path=drop_path)

    def finish(self) -> None:
        super().finish()
        self.norm = nn.LayerNorm(self.arch["channels"], eps=1e-6)

    def to_output(self, x: Tensor, grid: tuple[int, ...]) -> Tensor:
        return x[:, 0] if self.out_type == "cls_token" else super().to_output(x[:, self.num_extra_tokens :], grid)

    def norm_output(self, x: Tensor, stage: int) -> Tensor:
        return self.norm(x)

    def stage_modules(self, stage: int) -> list[nn.Module]:
        last = [self.norm] if stage == self.num_stages else []
        return [*super().stage_modules(stage), *last]

    # Names in timm and published weights.
    feature_indices = (-3, -2, -1)  # as timm's ViTs
    published: ClassVar[dict[Network, Rules]] = dict.fromkeys(DEIT, DEIT_RULES)
