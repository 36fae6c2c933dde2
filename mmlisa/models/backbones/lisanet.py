"""LiSANet and HyLiSANet (Kwon et al., "Lightweight Structure-Aware Attention for Visual Understanding", Tables 2 and 11)."""

from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from operator import mul
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mmlisa.errors import UserError
from mmlisa.models.attention import build_attention
from mmlisa.models.layers.blocks import Block, Branch, SepConv, build_norm
from mmlisa.models.layers.grids import ResizeOnLoad, stretch
from mmlisa.models.layers.tokens import PatchEmbed, to_tokens, token_conv
from mmlisa.models.published import CAFORMER, PVT_RULES, PVT_V2, Network, Rules, TimmNames
from mmlisa.registry import MODELS

from .base import Backbone, StageSize

TEMPORAL_KERNEL = 3  # depthwise convolutions on video: the "3x7x7" of Table 14
TEMPORAL_STRIDE = 2  # stride in time of the first embedding; later ones keep the frames (journal paper, Sec. 5.4)


class PositionedEmbed(ResizeOnLoad, PatchEmbed):
    """A patch embedding and a learned position ``[1, C, *grid]``, interpolated to the grid at hand."""

    on_grid = ("position_embedding",)

    def __init__(self, in_channels: int, channels: int, *args: Any, grid: Sequence[int], **options: Any) -> None:
        super().__init__(in_channels, channels, *args, **options)
        self.position_embedding = nn.Parameter(torch.empty(1, channels, *grid))
        nn.init.trunc_normal_(self.position_embedding, std=0.02)

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        x, grid = super().forward(x)
        return x + to_tokens(self._stretch(self.position_embedding, grid)), grid

    def resize_parameter(self, saved: Tensor, parameter: Tensor, grid: Sequence[int] | None = None) -> Tensor:
        return self._stretch(saved, parameter.shape[2:])

    @staticmethod
    def _stretch(position: Tensor, grid: Sequence[int]) -> Tensor:
        return stretch(position, grid, "bicubic" if len(grid) == 2 else "trilinear")


class ConvPosition(Branch):
    """The position embedding of a block, a depthwise convolution over 3 tokens of each axis: ``[B, N, C] -> [B, N, C]``."""

    order = ("dwconv",)

    def __init__(self, channels: int, grid_axes: int) -> None:
        super().__init__()
        self.hidden = channels
        self.dwconv = token_conv(channels, 3, grid_axes)


class PositionedBlock(Block):
    """A block that begins with a convolutional position embedding, ``x + CPE(x)``, or ends with it if ``at_end`` is True."""

    def __init__(
        self, channels: int, mixer: nn.Module, grid_axes: int, *, at_end: bool = False, **options: Any
    ) -> None:
        super().__init__(channels, mixer, grid_axes=grid_axes, **options)
        self.position, self.at_end = ConvPosition(channels, grid_axes), at_end

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        x = x if self.at_end else x + self.position(x, grid)
        x = super().forward(x, grid)
        return x + self.position(x, grid) if self.at_end else x


# Of the attention of other networks, only value and output are taken: LiSA normalises query and key, they do not.
_PVT_RULES: Rules = (
    (r"\.attn\.(q|sr|norm)\.", None),
    (r"^(.*\.attn\.)kv\.(.*)$", (None, r"\1v.\2")),
    *PVT_RULES,
    (r"^stages\.(\d)\.norm\.", r"norm\1."),
)
_CAFORMER_RULES: Rules = (
    (r"\.(res_scale\d|act\d?)\.", None),
    (r"^(.*)\.token_mixer\.qkv\.(.*)$", (None, None, r"\1.attn.v.\2")),
    (r"^stem\.conv\.", "stem.proj."),
    (r"^(stages\.\d+\.downsample)\.conv\.", r"\1.proj."),
    (r"^(stages\.\d+\.downsample)\.norm\.", None),  # before the convolution there, after it here
    (r"\.token_mixer\.", ".attn."),
)


@MODELS.register_module()
class LiSANet(Backbone):
    """LiSANet-S / -B, HyLiSANet-S / -B, the isotropic LiSANet-I and the first version's networks, with a norm on each map.

    Paper's drop path: 0.1 (S), 0.4 (B).

    Args:
        arch: ``mixers`` has a letter per stage: ``A`` (or ``L``, as in the paper), the operator of ``attention``, or ``C``, the
            hybrids' separable convolution with ``conv_kernel`` and ``conv_expansion``. ``position``: ``'stage'``, a convolutional
            embedding behind the first block of each stage, as in CPVT, which the journal cites; ``'conv'``, one at the start of
            each block; ``'learned'``; or None.
        image_size: (T, H, W) makes the video form: depthwise convolutions and operators over T x H x W tokens, after a first
            embedding that halves the T frames.
        norm_cfg: norms of the network: ``dict(type='LN', eps=1e-6)``, the paper's, or of type ``'BN'`` or ``'SyncBN'``.
    """

    image_axes = (2, 3)
    mixers = ("mixers", "AC")
    default_arch = "hybrid-small"
    convolutions = "fan-out"
    no_decay = ("position_embedding",)
    _conv: ClassVar[dict[str, Any]] = dict(conv_kernel=7, conv_expansion=2)  # keys that any arch may set
    _journal: ClassVar[dict[str, Any]] = dict(
        strides=(4, 2, 2, 2),
        overlap=True,
        mlp_ratios=(4, 4, 3, 3),
        conv_mlp=True,
        position="stage",
        **_conv,
        attention=dict(type="LiSA", num_patterns=8),
    )
    _small: ClassVar[dict[str, Any]] = dict(_journal, channels=(64, 128, 320, 384), num_heads=(4, 8, 20, 24))
    _base: ClassVar[dict[str, Any]] = dict(_journal, channels=(96, 192, 384, 576), num_heads=(6, 12, 24, 36))
    _first_version: ClassVar[dict[str, Any]] = dict(
        mixers="AAAA",
        strides=(4, 2, 2, 2),
        overlap=False,
        mlp_ratios=(4, 4, 4, 4),
        conv_mlp=False,
        position=None,
        **_conv,
        attention=dict(type="LiSA", num_patterns=16, norm=False, encoding_bias=True),
    )
    _isotropic: ClassVar[dict[str, Any]] = dict(
        mixers="A",
        depths=(12,),
        channels=(192,),
        num_heads=(12,),
        strides=(16,),
        overlap=False,
        mlp_ratios=(4,),
        conv_mlp=False,
        position="learned",
        **_conv,
        attention=dict(type="LiSA", num_patterns=16),
    )
    arch_settings: ClassVar[dict[str, dict[str, Any]]] = {
        "small": dict(_small, mixers="AAAA", depths=(2, 4, 12, 4)),
        "base": dict(_base, mixers="AAAA", depths=(4, 8, 18, 3)),
        "hybrid-small": dict(_small, mixers="CCAA", depths=(3, 6, 12, 4)),
        "hybrid-base": dict(_base, mixers="CCAA", depths=(3, 12, 18, 3)),
        "isotropic": _isotropic,
        "v1-isotropic": dict(_isotropic, attention=_first_version["attention"]),
        "v1-tiny": dict(
            _first_version,
            depths=(1, 2, 5, 2),
            channels=(64, 128, 256, 512),
            num_heads=(4, 8, 16, 32),
            attention=dict(_first_version["attention"], num_patterns=8),
        ),
        "v1-small": dict(_first_version, depths=(1, 2, 11, 2), channels=(64, 128, 256, 512), num_heads=(4, 8, 16, 32)),
        "v1-base": dict(
            _first_version, depths=(2, 3, 16, 3), channels=(96, 192, 384, 768), num_heads=(6, 12, 24, 48), overlap=True
        ),
    }

    def __init__(
        self, arch: str | dict[str, Any] | None = None, *, norm_cfg: dict[str, Any] | None = None, **options: Any
    ) -> None:
        self.norm_cfg = {"type": "LN", "eps": 1e-6} if norm_cfg is None else norm_cfg
        super().__init__(arch, **options)

    @classmethod
    def check_arch(cls, arch: dict[str, Any]) -> None:
        super().check_arch(arch)
        if arch["position"] not in ("stage", "conv", "learned", None):
            raise UserError(f"arch: position={arch['position']!r}; it must be 'stage', 'conv', 'learned' or None")

    @classmethod
    def stage_sizes(cls, arch: dict[str, Any]) -> list[StageSize]:
        strides = accumulate(arch["strides"], mul)
        return [StageSize(*size) for size in zip(arch["channels"], strides, arch["depths"], strict=True)]

    def stage_grid(self, stage: int) -> tuple[int, ...]:
        strides = (TEMPORAL_STRIDE, *(self.stage_strides[stage],) * 2)[-len(self.image_size) :]
        return tuple(-(-size // stride) for size, stride in zip(self.image_size, strides, strict=True))

    def build_stem(self) -> nn.Module:
        return self._build_embed(0, self.in_channels)

    def build_downsample(self, stage: int) -> nn.Module | None:
        return self._build_embed(stage, self.stage_channels[stage - 1]) if stage else None

    def _build_embed(self, stage: int, in_channels: int) -> PatchEmbed:
        arch, channels, axes = self.arch, self.stage_channels[stage], len(self.image_size)
        side, time = arch["strides"][stage], TEMPORAL_STRIDE if stage == 0 else 1
        kernel, padding = (2 * side - 1, side - 1) if arch["overlap"] else (side, 0)
        # The axes are T, H, W; images have the last two. In time, all embeddings overlap (Table 14's FLOPs: tubelets of 3x16x16).
        sizes = (2 * time - 1, kernel, kernel), (time, side, side), (time - 1, padding, padding)
        kernels, strides, paddings = (size[-axes:] for size in sizes)
        options = dict(norm=build_norm(self.norm_cfg, channels), grid_axes=axes)
        if stage == 0 and arch["position"] == "learned":
            grid = self.stage_grid(0)
            return PositionedEmbed(in_channels, channels, kernels, strides, paddings, grid=grid, **options)
        return PatchEmbed(in_channels, channels, kernels, strides, paddings, **options)

    def build_block(self, stage: int, index: int, drop_path: float, grid: tuple[int, ...]) -> nn.Module:
        arch, channels, axes = self.arch, self.stage_channels[stage], len(grid)
        if arch["mixers"][stage] == "C":
            kernel = (TEMPORAL_KERNEL, arch["conv_kernel"], arch["conv_kernel"])[-axes:]
            mixer = SepConv(channels, kernel, expansion=arch["conv_expansion"], grid_axes=axes)
        else:
            mixer = build_attention(self.attention, channels, arch["num_heads"][stage], grid)
        ratio, conv = arch["mlp_ratios"][stage], 3 if arch["conv_mlp"] else None
        norm = partial(build_norm, self.norm_cfg)
        options = dict(mlp_ratio=ratio, mlp_conv=conv, drop_path=drop_path, norm=norm, grid_axes=axes)
        if arch["position"] == "conv" or (arch["position"] == "stage" and index == 0):
            return PositionedBlock(channels, mixer, at_end=arch["position"] == "stage", **options)
        return Block(channels, mixer, **options)

    def build_norm(self, stage: int) -> nn.Module:
        return build_norm(self.norm_cfg, self.stage_channels[stage])

    # Names in timm and published weights.
    timm = (
        TimmNames("lisanet_{}", {"s": "small", "b": "base"}, hidden={}),
        TimmNames("hylisanet_{}", {"s": "hybrid-small", "b": "hybrid-base"}, hidden={}),
        TimmNames("lisanet_{}", {"i": "isotropic", "v1_i": "v1-isotropic"}),
        TimmNames("lisanet_v1_{}", {"tiny": "v1-tiny", "small": "v1-small", "base": "v1-base"}),
    )
    published: ClassVar[dict[Network, Rules]] = {**dict.fromkeys(PVT_V2, _PVT_RULES), CAFORMER: _CAFORMER_RULES}
