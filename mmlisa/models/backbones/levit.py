"""Castling-LeViT (You et al., "Castling-ViT", Table 2) on the layout of LeViT (Graham et al.)."""

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from mmlisa.models.attention import HeadPool, build_attention, join_heads, split_heads
from mmlisa.models.attention.levit import OffsetBias
from mmlisa.models.layers.blocks import stochastic_depth
from mmlisa.models.layers.tokens import ConvNorm, ConvStack, LinearNorm, TokenConv, norm_tokens, to_map, to_tokens
from mmlisa.models.published import Network, Rules, TimmNames
from mmlisa.ops.context import divide_up
from mmlisa.registry import MODELS

from .base import Backbone, StageSize


class Mlp(nn.Module):
    """Linear, BN, (depthwise convolution, BN,) hard-swish, Linear, BN, on ``[B, N, C]``."""

    def __init__(self, channels: int, ratio: float, conv_size: int | None = None) -> None:
        super().__init__()
        hidden = int(channels * ratio)
        self.ln1 = LinearNorm(channels, hidden)
        self.conv = TokenConv(hidden, conv_size) if conv_size else None
        self.conv_norm = nn.BatchNorm1d(hidden) if conv_size else None
        self.act = nn.Hardswish()
        self.ln2 = LinearNorm(hidden, channels)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        x = self.ln1(x)
        if self.conv is not None:
            x = norm_tokens(self.conv_norm, self.conv(x, grid))
        return self.ln2(self.act(x))


class Block(nn.Module):
    """``x + DropPath(BN(attn(x)))``, then ``x + DropPath(MLP(x))``, on ``[B, N, C]``."""

    def __init__(self, channels: int, attn: nn.Module, mlp: Mlp, drop_path: float) -> None:
        super().__init__()
        self.attn, self.norm, self.mlp = attn, nn.BatchNorm1d(channels), mlp
        self.drop_path = stochastic_depth(drop_path)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        x = x + self.drop_path(norm_tokens(self.norm, self.attn(x, grid)))
        return x + self.drop_path(self.mlp(x, grid))


class SubsampledAttention(nn.Module):
    """LeViT's shrinking attention: the queries are projections of every other token."""

    def __init__(self, in_channels: int, channels: int, num_heads: int, head_dims: int, grid: Sequence[int]) -> None:
        super().__init__()
        self.num_heads, self.head_dims = num_heads, head_dims
        self.kv = LinearNorm(in_channels, 5 * num_heads * head_dims)
        self.q = LinearNorm(in_channels, num_heads * head_dims)
        self.bias = OffsetBias(num_heads, grid)
        self.proj = LinearNorm(4 * num_heads * head_dims, channels)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        key, value = split_heads(self.kv(x), self.num_heads).split([self.head_dims, 4 * self.head_dims], dim=3)
        query = split_heads(self.q(to_tokens(to_map(x, grid)[:, :, ::2, ::2])), self.num_heads)
        bias = self.bias(grid, stride=2).to(query.dtype)
        y = F.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        return self.proj(F.hardswish(join_heads(y)))


class PooledQueryAttention(nn.Module):
    """Castling's shrinking attention (Table 1): MViTv2's, with only the queries pooled by stride 2 and added to the output.

    The input skips it, projected and max-pooled. ``key_stride=2`` pools keys and values as well ("token pooling").
    """

    def __init__(
        self, in_channels: int, channels: int, num_heads: int, head_dims: int, grid: Sequence[int], key_stride: int = 1
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv = LinearNorm(in_channels, 3 * num_heads * 4 * head_dims)
        self.pool = nn.ModuleList(HeadPool(4 * head_dims, stride) for stride in (2, key_stride, key_stride))
        self.proj = LinearNorm(4 * num_heads * head_dims, channels)
        self.skip = LinearNorm(in_channels, channels)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        qkv = (split_heads(t, self.num_heads) for t in self.qkv(x).chunk(3, dim=2))
        query, key, value = (pool(t, grid) for pool, t in zip(self.pool, qkv, strict=True))
        y = query + F.scaled_dot_product_attention(query, key, value)
        skip = F.max_pool2d(to_map(self.skip(x), grid), 3, 2, padding=1)
        return to_tokens(skip) + self.proj(join_heads(y))


DOWNSAMPLES = {
    "pool": PooledQueryAttention,
    "pool-tokens": partial(PooledQueryAttention, key_stride=2),
    "subsample": SubsampledAttention,
}


class DownBlock(nn.Module):
    """Shrinking attention, then ``x + DropPath(MLP(x))``: map -> tokens on half its grid, rounded up, and that grid."""

    def __init__(self, attn: nn.Module, mlp: Mlp, drop_path: float) -> None:
        super().__init__()
        self.attn, self.mlp = attn, mlp
        self.drop_path = stochastic_depth(drop_path)

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        half = tuple(divide_up(n, 2) for n in x.shape[2:])
        x = self.attn(to_tokens(x), x.shape[2:])
        return x + self.drop_path(self.mlp(x, half)), half


_RULES: Rules = (
    (r"attention_bias_idxs$", None),  # a buffer of mmpretrain's, recomputed
    *((rf"^stem\.conv{i + 1}\.", f"stem.{2 * i}.") for i in range(4)),  # hard-swish between them
    (r"^(stages\.\d+\.downsample)\.attn_downsample\.attention_biases$", r"\1.attn.bias.attention_biases"),
    (r"^(stages\.\d+\.downsample)\.attn_downsample\.(q|proj)\.ln\.", r"\1.attn.\2."),
    (r"^(stages\.\d+\.downsample)\.attn_downsample\.", r"\1.attn."),
    (r"\.attn\.attention_biases$", ".attn.bias.attention_biases"),
    (r"\.attn\.proj\.ln\.linear\.", ".attn.proj."),
    (r"\.attn\.proj\.ln\.bn\.", ".norm."),
)
# One list per stage: what leads into it, then attention and MLP of each block in turn.
_OPENMMLAB_RULES: Rules = (
    *((rf"^patch_embed\.patch_embed\.{2 * i}\.", f"stem.conv{i + 1}.") for i in range(4)),
    (r"^(stem\.conv\d)\.conv\.", r"\1.linear."),
    (r"^stages\.([12])\.0\.", r"stages.\1.downsample.attn_downsample."),
    (r"^stages\.([12])\.1\.block\.", r"stages.\1.downsample.mlp."),
    (r"^stages\.([12])\.(\d+)\.", r"stages.\1.{\2-2}."),
    *((rf"^stages\.(\d)\.{2 * i}\.block\.", rf"stages.\1.blocks.{i}.attn.") for i in range(4)),
    *((rf"^stages\.(\d)\.{2 * i + 1}\.block\.", rf"stages.\1.blocks.{i}.mlp.") for i in range(4)),
    (r"\.(q|proj)\.1\.", r".\1.ln."),
    (r"\.linear(\d)\.", r".ln\1."),
)


@MODELS.register_module()
class CastlingLeViT(Backbone):
    """LeViT with linear-angular attention, convolutions in its MLPs and pooled queries where it shrinks, at strides 16, 32, 64.

    LeViT itself is ``arch=dict(base=…, downsample='subsample', mlp_conv=None)`` with ``attention=dict(type='LeViTAttention',
    head_dims=D)``. The paper's Tables 1 and 11 vary ``downsample``: ``'subsample'`` projects every other query ("pre-Q pooling"),
    ``'pool'`` pools the projected ones ("post-Q"), ``'pool-tokens'`` keys and values as well; with them goes a
    ``PooledSoftmaxAttention`` with ``key_stride`` or ``key_dims``.

    Args:
        arch: ``head_dims`` is LeViT's D.
        drop_path_rate: of all blocks, as in LeViT.
    """

    default_arch = "256"
    _castling: ClassVar[dict[str, Any]] = dict(depths=(4, 4, 4), mlp_ratio=2, mlp_conv=5, downsample="pool")
    _attention: ClassVar[dict[str, Any]] = dict(type="LinearAngularAttention", pooled=True, qkv_bias=False, aux=True)
    _narrow: ClassVar[dict[str, Any]] = dict(_castling, head_dims=16, attention=dict(_attention, head_dims=32))
    _wide: ClassVar[dict[str, Any]] = dict(_castling, head_dims=32, attention=dict(_attention, head_dims=64))
    arch_settings: ClassVar[dict[str, dict[str, Any]]] = {
        "128": dict(_narrow, channels=(128, 256, 384), num_heads=(4, 8, 12)),
        "192": dict(_wide, channels=(192, 288, 384), num_heads=(3, 5, 6)),
        "256": dict(_wide, channels=(256, 384, 512), num_heads=(4, 6, 8)),
        "384": dict(_wide, channels=(384, 512, 768), num_heads=(6, 9, 12)),
    }

    @classmethod
    def stage_sizes(cls, arch: dict[str, Any]) -> list[StageSize]:
        return [size._replace(stride=4 * size.stride) for size in super().stage_sizes(arch)]

    def drop_rates(self, depths: Sequence[int]) -> list[list[float]]:
        return [[self.drop_path_rate] * depth for depth in depths]

    def build_stem(self) -> nn.Module:
        stem, widths = ConvStack(), [self.in_channels, *(self.stage_channels[0] // n for n in (8, 4, 2, 1))]
        for i in range(4):
            stem.append(ConvNorm(widths[i], widths[i + 1], 3, stride=2))
            if i < 3:
                stem.append(nn.Hardswish())
        return stem

    def build_downsample(self, stage: int) -> nn.Module | None:
        if stage == 0:
            return None
        (before, width), head_dims = self.stage_channels[stage - 1 : stage + 1], self.arch["head_dims"]
        build = DOWNSAMPLES[self.arch["downsample"]]
        attention = build(before, width, before // head_dims, head_dims, self.stage_grid(stage - 1))
        return DownBlock(attention, Mlp(width, 2), self.drop_path_rate)

    def build_block(self, stage: int, index: int, drop_path: float, grid: tuple[int, ...]) -> nn.Module:
        arch, width = self.arch, self.stage_channels[stage]
        attention = build_attention(self.attention, width, arch["num_heads"][stage], grid)
        return Block(width, attention, Mlp(width, arch["mlp_ratio"], arch["mlp_conv"]), drop_path)

    def finish(self) -> None:
        """Start residual branches at zero, as LeViT; its other layers keep PyTorch's initialisation."""
        for module in self.modules():
            if isinstance(module, Mlp):
                nn.init.zeros_(module.ln2.bn.weight)
            elif isinstance(module, Block):
                nn.init.zeros_(module.norm.weight)

    # Names in timm and published weights.
    timm = (TimmNames("castling_levit_{}", {arch: arch for arch in arch_settings}),)
    first_conv = "stem.0.linear"
    published: ClassVar[dict[Network, Rules]] = {
        Network(
            "LeViT", ("stem.conv1.linear.weight", "stages.0.blocks.0.attn.qkv.linear.weight"), timm=("levit_",)
        ): _RULES,
        Network(
            "LeViT, OpenMMLab's names",
            ("patch_embed.patch_embed.0.conv.weight", "stages.0.0.block.qkv.linear.weight"),
            rules=_OPENMMLAB_RULES,
        ): _RULES,
    }
