"""LiSANet and HyLiSANet (Kwon et al., "Lightweight Structure-Aware Attention for Visual Understanding", Tables 2 and 11)."""

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from timm.layers import DropPath
from torch import Tensor, nn

from mmlisa.models.attention import build_attention
from mmlisa.models.layers import CONVOLUTIONS, ChannelLinear, TokenMixer, build_norm, depthwise
from mmlisa.ops.tokenwise import add_in_bands, add_residual
from mmlisa.registry import MODELS

from .base import Backbone

TEMPORAL_KERNEL = 3  # of depthwise convolutions on video, as the "3x7x7" of Table 14
TEMPORAL_STRIDE = 2  # of the first embedding of a video; the others keep the frames (journal paper, Sec. 5.4)


class PatchEmbed(nn.Sequential):
    """Convolution that divides the grid by ``strides``, rounding up, then a norm: ``[B, C_in, *grid] -> [B, C, *(grid / s)]``.

    Overlapping: kernel 2s - 1. Otherwise kernel s, on a map padded to a multiple of s.
    """

    def __init__(
        self, in_channels: int, channels: int, strides: Sequence[int], overlap: bool, norm_cfg: dict[str, Any]
    ) -> None:
        kernel = tuple(2 * s - 1 if overlap else s for s in strides)
        padding = tuple(k // 2 if overlap else 0 for k in kernel)
        conv = CONVOLUTIONS[len(strides)](in_channels, channels, kernel, tuple(strides), padding)
        super().__init__(conv, build_norm(norm_cfg, channels, len(strides)))
        self.overlap = overlap

    def forward(self, x: Tensor) -> Tensor:
        if not self.overlap:
            missing = [-n % s for n, s in zip(x.shape[2:], self[0].stride, strict=True)]
            if any(missing):
                x = F.pad(x, [pad for n in reversed(missing) for pad in (0, n)])
        return super().forward(x)


class SepConv(nn.Sequential):
    """The mixer of the hybrids' first stages (Fig. 5): pointwise C -> 2C, GELU, depthwise 7x7, pointwise 2C -> C."""

    def __init__(self, channels: int, grid_axes: int) -> None:
        super().__init__(
            ChannelLinear(channels, 2 * channels),
            nn.GELU(),
            depthwise(2 * channels, (TEMPORAL_KERNEL,) * (grid_axes - 2) + (7, 7), grid_axes),
            ChannelLinear(2 * channels, channels),
        )


class Mlp(nn.Sequential):
    """Linear, (depthwise 3x3 on the hidden width,) GELU, Linear, on ``[B, C, *grid]``."""

    def __init__(self, channels: int, hidden: int, conv: bool, grid_axes: int) -> None:
        layers = [ChannelLinear(channels, hidden), nn.GELU(), ChannelLinear(hidden, channels)]
        if conv:
            layers.insert(1, depthwise(hidden, 3, grid_axes))
        super().__init__(*layers)


class Block(nn.Module):
    """``x + CPE(x)``, ``x + DropPath(mixer(norm(x)))``, ``x + DropPath(MLP(norm(x)))``, on ``[B, C, *grid]``.

    In inference on a CPU it may put the result over ``x``.
    """

    def __init__(
        self,
        channels: int,
        mixer: nn.Module,
        mlp_ratio: float,
        conv_mlp: bool,
        conv_position: bool,
        drop_path: float,
        norm_cfg: dict[str, Any],
        grid_axes: int = 2,
    ) -> None:
        super().__init__()
        self.position = depthwise(channels, 3, grid_axes) if conv_position else None
        self.norm1 = build_norm(norm_cfg, channels, grid_axes)
        self.mixer = mixer
        self.norm2 = build_norm(norm_cfg, channels, grid_axes)
        self.mlp = Mlp(channels, int(channels * mlp_ratio), conv_mlp, grid_axes)
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor) -> Tensor:
        if self.position is not None:
            x = add_in_bands(x, [self.position], width=self.position.out_channels)
        return self._add(self._add(x, self.norm1, self.mixer), self.norm2, self.mlp)

    def _add(self, x: Tensor, norm: nn.Module, branch: nn.Module) -> Tensor:
        # Not in training: a path is dropped, and a batch normed, as a whole.
        if self.training or not isinstance(branch, nn.Sequential):
            return add_residual(x, self.drop_path(branch(norm(x))))
        return add_in_bands(x, [norm, *branch], width=branch[0].out_features)


@MODELS.register_module()
class LiSANet(Backbone):
    """LiSANet-S / -B, HyLiSANet-S / -B, the isotropic LiSANet-I and the first version's networks.

    ``forward(image: [B, 3, H, W])`` returns one normed map ``[B, C_i, ceil(H / s_i), ceil(W / s_i)]`` per stage in
    ``out_indices``, for any H and W of at least 32.

    Args:
        arch: a name of ``arch_settings``, a dict of the same keys, or a dict with ``base='name'`` and what differs. Mixers:
            ``L`` is the operator of ``attention``, ``C`` the separable convolution of the hybrids.
        attention: the operator of the ``L`` stages; what it leaves open comes from the arch.
        image_size: pretraining resolution in pixels, a number or (H, W): the size of the operators' position kernels.
            (T, H, W) is the video form: depthwise convolutions and operators over T x H x W tokens, after a first embedding
            that halves the T frames; see :func:`mmlisa.checkpoints.inflate`.
        norm_cfg: norms of the network; ``dict(type='LN')`` is the paper's, ``'BN'`` and ``'SyncBN'`` train faster from scratch.
        drop_path_rate: of the last block, growing linearly from 0. The paper's: 0.1 (S), 0.4 (B).
        in_channels: channels of the image.
        out_indices, frozen_stages, norm_eval, with_cp, init_cfg: see :class:`Backbone`.

    Raises:
        ValueError: an unknown arch, key, norm or operator, an index out of range, an image smaller than 32.
    """

    _journal: ClassVar[dict[str, Any]] = dict(
        strides=(4, 2, 2, 2),
        overlap=True,
        mlp_ratios=(4, 4, 3, 3),
        conv_mlp=True,
        position="conv",
        attention=dict(type="LiSA", num_patterns=8),
    )
    _first_version: ClassVar[dict[str, Any]] = dict(
        mixers="LLLL",
        strides=(4, 2, 2, 2),
        overlap=False,
        mlp_ratios=(4, 4, 4, 4),
        conv_mlp=False,
        position=None,
        attention=dict(type="LiSA", num_patterns=16, norm=False, encoding_bias=True),
    )
    arch_settings: ClassVar[dict[str, dict[str, Any]]] = {
        "small": dict(
            _journal, mixers="LLLL", depths=(2, 4, 12, 4), channels=(64, 128, 320, 384), num_heads=(4, 8, 20, 24)
        ),
        "base": dict(
            _journal, mixers="LLLL", depths=(4, 8, 18, 3), channels=(96, 192, 384, 576), num_heads=(6, 12, 24, 36)
        ),
        "hybrid-small": dict(
            _journal, mixers="CCLL", depths=(3, 6, 12, 4), channels=(64, 128, 320, 384), num_heads=(4, 8, 20, 24)
        ),
        "hybrid-base": dict(
            _journal, mixers="CCLL", depths=(3, 12, 18, 3), channels=(96, 192, 384, 576), num_heads=(6, 12, 24, 36)
        ),
        "isotropic": dict(
            mixers="L",
            depths=(12,),
            channels=(192,),
            num_heads=(12,),
            strides=(16,),
            overlap=False,
            mlp_ratios=(4,),
            conv_mlp=False,
            position="learned",
            attention=dict(type="LiSA", num_patterns=16),
        ),
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
        self,
        arch: str | dict[str, Any] = "hybrid-small",
        *,
        attention: dict[str, Any] | None = None,
        image_size: int | Sequence[int] = 224,
        norm_cfg: dict[str, Any] | None = None,
        drop_path_rate: float = 0.0,
        in_channels: int = 3,
        out_indices: Sequence[int] | None = None,
        frozen_stages: int = -1,
        norm_eval: bool = False,
        with_cp: bool = False,
        init_cfg: dict | list[dict] | None = None,
    ) -> None:
        arch = self.resolve_arch(arch)
        depths, channels, strides = arch["depths"], arch["channels"], arch["strides"]
        num_stages = len(depths)
        super().__init__(
            num_stages=num_stages,
            out_indices=range(num_stages) if out_indices is None else out_indices,
            frozen_stages=frozen_stages,
            norm_eval=norm_eval,
            with_cp=with_cp,
            init_cfg=init_cfg,
        )
        norm_cfg = norm_cfg or dict(type="LN", eps=1e-6)
        attention = attention or arch["attention"]
        size = (image_size, image_size) if isinstance(image_size, int) else tuple(image_size)
        if len(size) not in (2, 3):
            raise ValueError(f"image_size={image_size}; it must be a number, (H, W), or (T, H, W) for video")
        self.grid_axes = len(size)
        self.feature_channels = tuple(channels[i] for i in self.out_indices)
        self.feature_strides = tuple(prod(strides[: i + 1]) for i in self.out_indices)

        self.position_embedding = None
        rates = iter(torch.linspace(0, drop_path_rate, sum(depths), device="cpu").tolist())
        self.embeds, self.stages = nn.ModuleList(), nn.ModuleList()
        for i in range(num_stages):
            steps = (strides[i], strides[i])
            if self.grid_axes == 3:
                steps = (TEMPORAL_STRIDE if i == 0 else 1, *steps)
            self.embeds.append(
                PatchEmbed(channels[i - 1] if i else in_channels, channels[i], steps, arch["overlap"], norm_cfg)
            )
            size = grid = tuple(-(-n // step) for n, step in zip(size, steps, strict=True))
            if i == 0 and arch["position"] == "learned":
                self.position_embedding = nn.Parameter(torch.empty(1, channels[0], *grid))
                nn.init.trunc_normal_(self.position_embedding, std=0.02)
            blocks = nn.ModuleList()
            for _ in range(depths[i]):
                if arch["mixers"][i] == "C":
                    mixer = SepConv(channels[i], self.grid_axes)
                else:
                    mixer = TokenMixer(build_attention(attention, channels[i], arch["num_heads"][i], grid))
                blocks.append(
                    Block(
                        channels[i],
                        mixer,
                        arch["mlp_ratios"][i],
                        arch["conv_mlp"],
                        arch["position"] == "conv",
                        next(rates),
                        norm_cfg,
                        self.grid_axes,
                    )
                )
            self.stages.append(blocks)
            if i in self.out_indices:
                self.add_module(f"norm{i}", build_norm(norm_cfg, channels[i], self.grid_axes))
        self._init_layers()

    def _init_layers(self) -> None:
        """Linear: truncated normal 0.02; convolutions: scaled by their fan-out, as PVTv2, whose embeddings and MLP these are."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
            elif isinstance(module, nn.Conv2d | nn.Conv3d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            else:
                continue
            if module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        """``[B, 3, H, W]`` -> one ``[B, C_i, H_i, W_i]`` per output stage; for video with a time axis before H and H_i.

        Raises:
            ValueError: an image smaller than 32, or a video for a network of images (and the other way round).
        """
        self.check_image(image)
        if image.ndim != 2 + self.grid_axes:
            axes = "[B, 3, H, W]" if self.grid_axes == 2 else "[B, 3, T, H, W]"
            raise ValueError(f"this network takes {axes}, but got {tuple(image.shape)}; image_size decides which")
        x = image.contiguous(memory_format=torch.channels_last if self.grid_axes == 2 else torch.channels_last_3d)
        maps = []
        for i, (embed, blocks) in enumerate(zip(self.embeds, self.stages, strict=True)):
            x = embed(x)
            if i == 0 and self.position_embedding is not None:
                x = x + self._position(self.position_embedding, x.shape[2:])
            for block in blocks:
                x = self.run_block(block, x)
            if i in self.out_indices:
                # Plain NCHW memory: mmcv's compiled ops (RoIAlign) read it as such without looking.
                maps.append(getattr(self, f"norm{i}")(x).contiguous())
        return tuple(maps)

    def _position(self, position: Tensor, grid: torch.Size) -> Tensor:
        """The position embedding ``[1, C, *any_grid]`` on ``grid``."""
        if position.shape[2:] == grid:
            return position
        mode = "bicubic" if self.grid_axes == 2 else "trilinear"
        return F.interpolate(position, size=grid, mode=mode, align_corners=False)

    def adapt_state_dict(self, state_dict: dict[str, Tensor], prefix: str) -> None:
        """Interpolates a position embedding of another grid, in ``state_dict``."""
        theirs = state_dict.get(prefix + "position_embedding")
        if theirs is not None and self.position_embedding is not None and theirs.ndim == 2 + self.grid_axes:
            grid = self.position_embedding.shape[2:]
            state_dict[prefix + "position_embedding"] = self._position(theirs, grid)

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *args: Any) -> None:
        self.adapt_state_dict(state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def stage_modules(self, stage: int) -> list[nn.Module | nn.Parameter]:
        modules = super().stage_modules(stage)
        return [*modules, self.position_embedding] if stage == 0 and self.position_embedding is not None else modules
