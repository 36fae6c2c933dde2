"""Castling-MViTv2 (You et al., "Castling-ViT", Table 2) on the layout of MViTv2 (Li et al.); names are as in timm."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmlisa.models.attention import HeadPool, build_attention, join_heads, split_heads
from mmlisa.models.layers.blocks import Block, LayerNorm, Mlp, stochastic_depth
from mmlisa.models.layers.grids import ResizeOnLoad, stretch
from mmlisa.models.layers.tokens import PatchEmbed, to_map, to_tokens
from mmlisa.models.published import Network, Rules, TimmNames
from mmlisa.ops.context import divide_up
from mmlisa.registry import MODELS

from .base import Backbone, StageSize


class RelativeBias(ResizeOnLoad):
    """MViTv2's decomposed relative positions: ``q_i · (R^h_{dy} + R^w_{dx})``, for grids of any size.

    The distances between queries and keys are measured on the finer of their two grids, and mapped to the pretraining
    grid's by interpolating the table.
    """

    on_grid = ("rel_pos_h", "rel_pos_w")

    def __init__(self, head_dims: int, side: int) -> None:
        super().__init__()
        self.rel_pos_h = nn.Parameter(torch.empty(2 * side - 1, head_dims))
        self.rel_pos_w = nn.Parameter(torch.empty(2 * side - 1, head_dims))
        nn.init.trunc_normal_(self.rel_pos_h, std=0.02)
        nn.init.trunc_normal_(self.rel_pos_w, std=0.02)

    def resize_parameter(self, saved: Tensor, parameter: Tensor, grid: Sequence[int] | None = None) -> Tensor:
        return stretch(saved.T, (len(parameter),), "linear").T

    def forward(self, query: Tensor, query_grid: Sequence[int], key_grid: Sequence[int]) -> Tensor:
        """``query [B, h, N_q, d]`` -> logits ``[B, h, N_q, N_k]``."""
        on_map = query.unflatten(2, tuple(query_grid))
        rel_h, rel_w = (
            self._between(table, n, m)
            for table, n, m in zip((self.rel_pos_h, self.rel_pos_w), query_grid, key_grid, strict=True)
        )
        along_h = torch.einsum("bnhwc,hkc->bnhwk", on_map, rel_h.to(query.dtype))
        along_w = torch.einsum("bnhwc,wkc->bnhwk", on_map, rel_w.to(query.dtype))
        return (along_h[..., None] + along_w[..., None, :]).flatten(4, 5).flatten(2, 3)

    @staticmethod
    def _between(table: Tensor, queries: int, keys: int) -> Tensor:
        """``[N_q, N_k, d]``, the table's entries for all pairs along an axis."""
        length = 2 * max(queries, keys) - 1
        table = stretch(table.T, (length,), "linear").T  # as mmpretrain's MViT
        q_step, k_step = max(keys / queries, 1.0), max(queries / keys, 1.0)
        offset = torch.arange(queries, device=table.device)[:, None] * q_step
        offset = offset - torch.arange(keys, device=table.device) * k_step + (keys - 1) * k_step
        return table[offset.long().clamp(0, length - 1)]


class PooledAttention(nn.Module):
    """MViTv2's own attention: queries, keys and values pooled by strided depthwise convolutions, relative positions, + q."""

    def __init__(
        self, in_channels: int, channels: int, num_heads: int, side: int, stride_q: int, stride_kv: int
    ) -> None:
        super().__init__()
        self.num_heads, self.stride_q, self.stride_kv = num_heads, stride_q, stride_kv
        head_dims = channels // num_heads
        self.qkv = nn.Linear(in_channels, 3 * channels)
        self.pool_q, self.pool_k, self.pool_v = (
            HeadPool(head_dims, s, eps=1e-6) for s in (stride_q, stride_kv, stride_kv)
        )
        self.bias = RelativeBias(head_dims, max(side // stride_q, side // stride_kv))
        self.proj = nn.Linear(channels, channels)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        query, key, value = (split_heads(t, self.num_heads) for t in self.qkv(x).chunk(3, dim=2))
        query, key, value = self.pool_q(query, grid), self.pool_k(key, grid), self.pool_v(value, grid)
        query_grid, key_grid = ([divide_up(n, stride) for n in grid] for stride in (self.stride_q, self.stride_kv))
        bias = self.bias(query, query_grid, key_grid)
        y = query + F.scaled_dot_product_attention(query, key, value, attn_mask=bias.to(query.dtype))
        return self.proj(join_heads(y))


class PooledBlock(nn.Module):
    """MViTv2's block. Its skip connection is projected if the width changes and max-pooled if the grid shrinks."""

    def __init__(
        self, in_channels: int, channels: int, attention: PooledAttention, mlp_ratio: float, drop_path: float
    ) -> None:
        super().__init__()
        self.stride = attention.stride_q
        self.norm1 = nn.LayerNorm(in_channels, eps=1e-6)
        self.attn = attention
        self.shortcut_proj_attn = nn.Linear(in_channels, channels) if in_channels != channels else None
        self.norm2 = LayerNorm(channels, eps=1e-6)
        self.mlp = Mlp(channels, int(channels * mlp_ratio))
        self.drop_path = stochastic_depth(drop_path)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        normed = self.norm1(x)
        # As in MViTv2, the skip connection is normed only if it is projected.
        skip = x if self.shortcut_proj_attn is None else self.shortcut_proj_attn(normed)
        if self.stride > 1:
            skip = to_tokens(F.max_pool2d(to_map(skip, grid), self.stride + 1, self.stride, padding=self.stride // 2))
        x = skip + self.drop_path(self.attn(normed, grid))
        return x + self.drop_path(self.mlp(self.norm2(x), [divide_up(n, self.stride) for n in grid]))


class PooledDownsample(PooledBlock):
    """The block of stride 2 that begins a stage: map -> tokens and their grid."""

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        grid = x.shape[2:]
        return super().forward(to_tokens(x), grid), tuple(divide_up(n, self.stride) for n in grid)


def divide_into_stages(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Divide OpenMMLab's single list of blocks into stages; the first block of a stage projects its input to more channels."""
    places, start, stage = {}, 0, 0
    for number in sorted({int(name.split(".")[1]) for name in state if name.startswith("blocks.")}):
        if f"blocks.{number}.proj.weight" in state:
            start, stage = number, stage + 1
        places[str(number)] = f"stages.{stage}.blocks.{number - start}."
    return {re.sub(r"^blocks\.(\d+)\.", lambda match: places[match[1]], name): t for name, t in state.items()}


_RULES: Rules = (
    (r"^patch_embed\.", "stem."),
    (r"^norm\.", "norm3."),
    # The first block of a stage, which has stride 2, is the stage's downsample in this package.
    (r"^stages\.([1-9])\.blocks\.0\.", r"stages.\1.downsample."),
    (r"^stages\.([1-9])\.blocks\.(\d+)\.", r"stages.\1.blocks.{\2-1}."),
    (r"\.attn\.pool_(.)\.weight$", r".attn.pool_\1.conv.weight"),
    (r"\.attn\.norm_(.)\.", r".attn.pool_\1.norm."),
    (r"\.attn\.rel_pos_", ".attn.bias.rel_pos_"),
)


@MODELS.register_module()
class CastlingMViTv2(Backbone):
    """MViTv2 whose stride-1 blocks have linear-angular attention at full resolution and convolutions in their MLPs.

    The query is added to the attended tokens, as in MViTv2 ("residual connections", the paper's appendix B). The three blocks of
    stride 2 stay MViTv2's. Each map has a norm. MViTv2 itself is ``arch=dict(base=…, castled=False)``.

    Args:
        arch: ``channels`` and ``num_heads`` are the first stage's and double with each stage.
    """

    _castling: ClassVar[dict[str, Any]] = dict(
        channels=96,
        num_heads=1,
        mlp_ratio=4,
        mlp_conv=5,
        castled=True,
        attention=dict(type="LinearAngularAttention", residual=True, aux=True),
    )
    arch_settings: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": dict(_castling, depths=(1, 2, 5, 2)),
        "small": dict(_castling, depths=(1, 2, 11, 2)),
        "base": dict(_castling, depths=(2, 3, 16, 3)),
    }

    default_arch = "tiny"

    @classmethod
    def stage_sizes(cls, arch: dict[str, Any]) -> list[StageSize]:
        """The first block of a later stage is its downsampling."""
        sizes = ((arch["channels"] * 2**stage, 4 * 2**stage, depth) for stage, depth in enumerate(arch["depths"]))
        return [StageSize(channels, stride, depth - (stride > 4)) for channels, stride, depth in sizes]

    def drop_rates(self, depths: Sequence[int]) -> list[list[float]]:
        first, *others = super().drop_rates(self.arch["depths"])
        return [first, *(rates[1:] for rates in others)]

    def build_stem(self) -> nn.Module:
        return PatchEmbed(self.in_channels, self.stage_channels[0], 7, 4, 3, norm=nn.Identity())

    def build_downsample(self, stage: int) -> nn.Module | None:
        if stage == 0:
            return None
        rate = super().drop_rates(self.arch["depths"])[stage][0]
        return self._build_pooled(stage, self.stage_channels[stage - 1], self.stage_grid(stage - 1), 2, rate)

    def build_block(self, stage: int, index: int, drop_path: float, grid: tuple[int, ...]) -> nn.Module:
        arch, channels = self.arch, self.stage_channels[stage]
        if not arch["castled"]:
            return self._build_pooled(stage, channels, grid, 1, drop_path)
        attention = build_attention(self.attention, channels, arch["num_heads"] * 2**stage, grid)
        ratio, conv = arch["mlp_ratio"], arch["mlp_conv"]
        return Block(channels, attention, mlp_ratio=ratio, mlp_conv=conv, drop_path=drop_path)

    def build_norm(self, stage: int) -> nn.Module:
        return nn.LayerNorm(self.stage_channels[stage], eps=1e-6)

    def _build_pooled(
        self, stage: int, in_channels: int, grid: tuple[int, ...], stride: int, drop_path: float
    ) -> PooledBlock:
        """Build MViTv2's own block; ``grid`` is that of its input, whose longer side sets the length of its tables."""
        channels, num_heads = self.stage_channels[stage], self.arch["num_heads"] * 2**stage
        attention = PooledAttention(in_channels, channels, num_heads, max(grid), stride, max(4 // 2**stage, 1))
        block = PooledDownsample if stride > 1 else PooledBlock
        return block(in_channels, channels, attention, self.arch["mlp_ratio"], drop_path)

    # Names in timm and published weights.
    timm = (TimmNames("castling_mvitv2_{}", {"t": "tiny", "s": "small", "b": "base"}),)
    published: ClassVar[dict[Network, Rules]] = {
        Network(
            "MViTv2", ("patch_embed.proj.weight", "stages.0.blocks.0.attn.pool_q.weight"), timm=("mvitv2_",)
        ): _RULES,
        Network(
            "MViTv2, OpenMMLab's names",
            ("patch_embed.projection.weight", "blocks.0.attn.pool_q.weight"),
            prepare=divide_into_stages,
            rules=(
                (r"^patch_embed\.projection\.", "patch_embed.proj."),
                (r"^(stages\.\d+\.blocks\.\d+)\.proj\.", r"\1.shortcut_proj_attn."),
            ),
        ): _RULES,
    }
