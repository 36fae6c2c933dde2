"""Castling-MViTv2 (You et al., "Castling-ViT", Table 2) on the layout of MViTv2 (Li et al.); names are timm's."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from timm.layers import DropPath
from torch import Tensor, nn

from mmlisa.models.attention import HeadPool, build_attention
from mmlisa.models.layers import TokenBlock, TokenMlp, to_map, to_tokens
from mmlisa.registry import MODELS

from .base import Backbone


class RelativeBias(nn.Module):
    """MViTv2's decomposed relative positions: ``q_i · (R^h_{dy} + R^w_{dx})``, for grids of any size.

    The distances between queries and keys are measured on the finer of their two grids, and mapped to the pretraining
    grid's by interpolating the table.
    """

    def __init__(self, head_dims: int, side: int) -> None:
        super().__init__()
        self.rel_pos_h = nn.Parameter(torch.empty(2 * side - 1, head_dims))
        self.rel_pos_w = nn.Parameter(torch.empty(2 * side - 1, head_dims))
        nn.init.trunc_normal_(self.rel_pos_h, std=0.02)
        nn.init.trunc_normal_(self.rel_pos_w, std=0.02)

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
        if len(table) != length:
            table = F.interpolate(table.T[None], size=length, mode="linear", align_corners=True)[0].T
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
        query, key, value = self.qkv(x).unflatten(2, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        query, key, value = self.pool_q(query, grid), self.pool_k(key, grid), self.pool_v(value, grid)
        query_grid, key_grid = ([-(-n // stride) for n in grid] for stride in (self.stride_q, self.stride_kv))
        bias = self.bias(query, query_grid, key_grid)
        y = query + F.scaled_dot_product_attention(query, key, value, attn_mask=bias.to(query.dtype))
        return self.proj(y.transpose(1, 2).flatten(2))


class PooledBlock(nn.Module):
    """MViTv2's block; where it shrinks, the input skips it projected (where the width changes) and max-pooled."""

    def __init__(
        self,
        in_channels: int,
        channels: int,
        num_heads: int,
        side: int,
        stride_q: int,
        stride_kv: int,
        mlp_ratio: float,
        drop_path: float,
    ) -> None:
        super().__init__()
        self.stride = stride_q
        self.norm1 = nn.LayerNorm(in_channels, eps=1e-6)
        self.attn = PooledAttention(in_channels, channels, num_heads, side, stride_q, stride_kv)
        self.shortcut_proj_attn = nn.Linear(in_channels, channels) if in_channels != channels else None
        self.norm2 = nn.LayerNorm(channels, eps=1e-6)
        self.mlp = TokenMlp(channels, int(channels * mlp_ratio))
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        normed = self.norm1(x)
        # As MViTv2 does it, the skip is normed only where it is projected.
        skip = x if self.shortcut_proj_attn is None else self.shortcut_proj_attn(normed)
        if self.stride > 1:
            skip = to_tokens(F.max_pool2d(to_map(skip, grid), self.stride + 1, self.stride, padding=self.stride // 2))
        x = skip + self.drop_path(self.attn(normed, grid))
        return x + self.drop_path(self.mlp(self.norm2(x), [-(-n // self.stride) for n in grid]))


@MODELS.register_module()
class CastlingMViTv2(Backbone):
    """MViTv2 whose stride-1 blocks have linear-angular attention at full resolution and convolutions in their MLPs.

    The three blocks of stride 2 stay MViTv2's. ``forward(image: [B, 3, H, W])`` returns one normed map per stage in
    ``out_indices``, at strides 4, 8, 16, 32, for any H and W of at least 32. MViTv2 itself is ``arch=dict(base=…,
    castled=False)``.

    Args:
        arch: ``'tiny'``, ``'small'``, ``'base'``, or a dict of their keys.
        attention: operator of the stride-1 blocks; None: linear-angular with DConv and the auxiliary branch.
        image_size: pretraining resolution in pixels: the size of the relative positions.
        drop_path_rate: of the last block, growing linearly from 0.
        in_channels: channels of the image.
        out_indices, frozen_stages, norm_eval, with_cp, init_cfg: see :class:`Backbone`.

    Raises:
        ValueError: an unknown arch, key or operator, an index out of range, an image smaller than 32.
    """

    _castling: ClassVar[dict[str, Any]] = dict(channels=96, num_heads=1, mlp_ratio=4, mlp_conv=5, castled=True)
    arch_settings: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": dict(_castling, depths=(1, 2, 5, 2)),
        "small": dict(_castling, depths=(1, 2, 11, 2)),
        "base": dict(_castling, depths=(2, 3, 16, 3)),
    }

    def __init__(
        self,
        arch: str | dict[str, Any] = "tiny",
        *,
        attention: dict[str, Any] | None = None,
        image_size: int = 224,
        drop_path_rate: float = 0.0,
        in_channels: int = 3,
        out_indices: Sequence[int] = (0, 1, 2, 3),
        frozen_stages: int = -1,
        norm_eval: bool = False,
        with_cp: bool = False,
        init_cfg: dict | list[dict] | None = None,
    ) -> None:
        arch = self.resolve_arch(arch)
        depths = arch["depths"]
        super().__init__(
            num_stages=len(depths),
            out_indices=out_indices,
            frozen_stages=frozen_stages,
            norm_eval=norm_eval,
            with_cp=with_cp,
            init_cfg=init_cfg,
        )
        attention = attention or dict(type="LinearAngularAttention", aux=True)
        widths = [arch["channels"] * 2**i for i in range(len(depths))]
        self.feature_channels = tuple(widths[i] for i in self.out_indices)
        self.feature_strides = tuple(4 * 2**i for i in self.out_indices)

        self.patch_embed = nn.Conv2d(in_channels, widths[0], 7, 4, padding=3)
        rates = iter(torch.linspace(0, drop_path_rate, sum(depths), device="cpu").tolist())
        side, channels = -(-image_size // 4), widths[0]
        self.stages = nn.ModuleList()
        for i, (depth, width) in enumerate(zip(depths, widths, strict=True)):
            heads = arch["num_heads"] * 2**i
            blocks = nn.ModuleList()
            for j in range(depth):
                stride = 2 if i and j == 0 else 1
                if arch["castled"] and stride == 1:
                    operator = build_attention(attention, width, heads, (side, side))
                    block = TokenBlock(
                        width,
                        operator,
                        mlp_ratio=arch["mlp_ratio"],
                        mlp_conv=arch["mlp_conv"],
                        drop_path=next(rates),
                        norm_eps=1e-6,
                    )
                else:
                    stride_kv = max(4 // 2**i, 1)
                    block = PooledBlock(channels, width, heads, side, stride, stride_kv, arch["mlp_ratio"], next(rates))
                side, channels = -(-side // stride), width
                blocks.append(block)
            self.stages.append(blocks)
        for i in self.out_indices:
            self.add_module(f"norm{i}", nn.LayerNorm(widths[i], eps=1e-6))
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        """``[B, 3, H, W]`` -> one ``[B, C_i, ceil(H / s_i), ceil(W / s_i)]`` per output stage."""
        self.check_image(image)
        height, width = image.shape[2:]
        x = self.patch_embed(F.pad(image, (0, -width % 4, 0, -height % 4)))
        grid, x = tuple(x.shape[2:]), to_tokens(x)
        maps = []
        for i, blocks in enumerate(self.stages):
            for j, block in enumerate(blocks):
                x = self.run_block(block, x, grid)
                if i and j == 0:
                    grid = tuple(-(-n // 2) for n in grid)
            if i in self.out_indices:
                maps.append(to_map(getattr(self, f"norm{i}")(x), grid).contiguous())
        return tuple(maps)

    def stage_modules(self, stage: int) -> list[nn.Module | nn.Parameter]:
        if stage == 0:
            return [self.patch_embed]
        norm = getattr(self, f"norm{stage - 1}", None)
        return [self.stages[stage - 1], *([norm] if norm else [])]
