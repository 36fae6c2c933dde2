"""iViT (Kang et al., "Interactive Multi-Head Self-Attention with Linear Complexity", Table 1) on the CAFormer layout.

The layout is that of "MetaFormer Baselines for Vision" (Yu et al., 2022): with softmax for interactive attention, ``tiny``,
``small`` and ``base`` are timm's ``caformer_s18``, ``caformer_s36`` and ``caformer_m36``. It is written anew because timm's
blocks do not tell a mixer its grid, and on maps in channels-last memory, where every change between maps and tokens is a view.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from timm.layers import DropPath
from torch import Tensor, nn

from mmlisa.models.attention import build_attention
from mmlisa.models.layers import ChannelLayerNorm, ChannelLinear, TokenLinear, to_map, to_tokens
from mmlisa.ops.tokenwise import add_in_bands, add_residual, is_cpu_inference, tokenwise
from mmlisa.registry import MODELS

from .base import Backbone
from .pyramid import merge_attention

EPS = 1e-6


class StarReLU(nn.Module):
    """``scale * relu(x)² + bias`` with a learned scale and bias (MetaFormer baselines, Sec. 2).

    In inference on a CPU it overwrites its input, the output of a linear layer that nobody else sees: there, new wide activations
    and passes over them cost more than the arithmetic.
    """

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        if not is_cpu_inference(x):
            return self.scale * x.relu().square() + self.bias
        x.relu_()
        return torch.addcmul(self.bias.to(x.dtype), x, x, value=self.scale.item(), out=x)


class SepConv(nn.Sequential):
    """Mixer of the convolutional stages: pointwise C -> 2C, StarReLU, depthwise 7x7, pointwise 2C -> C."""

    def __init__(self, channels: int) -> None:
        hidden = 2 * channels
        super().__init__(
            OrderedDict(
                pwconv1=ChannelLinear(channels, hidden, bias=False),
                act=StarReLU(),
                dwconv=nn.Conv2d(hidden, hidden, 7, padding=3, groups=hidden, bias=False),
                pwconv2=ChannelLinear(hidden, channels, bias=False),
            )
        )

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        """``x: [B, N, C]`` -> ``[B, N, C]``."""
        return to_tokens(super().forward(to_map(x, grid)))


class Mlp(nn.Module):
    """Linear C -> 4C, StarReLU, Linear 4C -> C."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.fc1 = TokenLinear(channels, 4 * channels, bias=False)
        self.act = StarReLU()
        self.fc2 = TokenLinear(4 * channels, channels, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """``[..., C]`` -> ``[..., C]``."""
        return self.fc2(self.act(self.fc1(x)))


class Scale(nn.Module):
    """A learned factor per channel, 1 at the start: ``[..., C]`` -> ``[..., C]``."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


class Block(nn.Module):
    """``r1 x + DropPath(mixer(norm(x)))``, ``r2 x + DropPath(MLP(norm(x)))``, on ``[B, N, C]``; r1, r2 with ``res_scale``.

    In inference on a CPU it may put the result over ``x``.
    """

    def __init__(self, channels: int, token_mixer: nn.Module, res_scale: bool, drop_path: float) -> None:
        super().__init__()
        self.channels = channels
        self.norm1 = nn.LayerNorm(channels, eps=EPS, bias=False)
        self.token_mixer = token_mixer
        self.res_scale1 = Scale(channels) if res_scale else nn.Identity()
        self.norm2 = nn.LayerNorm(channels, eps=EPS, bias=False)
        self.mlp = Mlp(channels)
        self.res_scale2 = Scale(channels) if res_scale else nn.Identity()
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        if self.training:  # a path is dropped per image, not per token
            return self._mlp(self._mix(x, grid))
        in_bands = isinstance(self.token_mixer, SepConv) and isinstance(self.res_scale1, nn.Identity)
        x = self._mix_in_bands(x, grid) if in_bands else self._mix(x, grid)
        return tokenwise(self._mlp, x, width=4 * self.channels)

    def _mix(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        mixed = self.drop_path(self.token_mixer(self.norm1(x), grid))
        return add_residual(self.res_scale1(x), mixed)

    def _mix_in_bands(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        def norm(x: Tensor) -> Tensor:
            return self.norm1(x.movedim(1, -1)).movedim(-1, 1)

        layers = [norm, *self.token_mixer]
        return to_tokens(add_in_bands(to_map(x, grid), layers, width=self.token_mixer.dwconv.in_channels))

    def _mlp(self, x: Tensor) -> Tensor:
        return self.res_scale2(x) + self.drop_path(self.mlp(self.norm2(x)))


@MODELS.register_module()
class iViT(Backbone):
    """iViT-T, -S, -B: separable convolutions in stages 1 and 2, interactive attention in stages 3 and 4.

    ``forward(image: [B, 3, H, W])`` returns one map per stage in ``out_indices``, for any H and W of at least 32. The sizes are
    CAFormer's: the stem, a 7x7 convolution of stride 4 and padding 2, gives (H + 1) // 4, and each later stage half of that,
    rounded up.

    Args:
        arch: a name of ``arch_settings``, a dict of the same keys, or a dict with ``base='name'`` and what differs. Mixers:
            ``A`` is the operator of ``attention``, ``C`` the separable convolution.
        attention: the operator of the ``A`` stages; options of the paper's (``landmarks``, …) where it has no other ``type``.
        image_size: pretraining resolution in pixels, a number or (H, W), for operators with position-dependent parameters.
        output_norm: a LayerNorm per returned map, as dense tasks need; the classifier has its own after the pooling.
        drop_path_rate: of the last block, growing linearly from 0. The paper's: 0.15 (T), 0.3 (S), 0.4 (B) on ImageNet.
        in_channels: channels of the image.
        out_indices, frozen_stages, norm_eval, with_cp, init_cfg: see :class:`Backbone`.

    Raises:
        ValueError: an unknown arch, key or operator, an index out of range, an image smaller than 32.
    """

    _hybrid: ClassVar[dict[str, Any]] = dict(
        mixers="CCAA",
        res_scale=(False, False, True, True),
        attention=dict(type="InteractiveAttention", landmarks=49),
    )
    arch_settings: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": dict(_hybrid, depths=(3, 3, 9, 3), channels=(64, 128, 320, 512), num_heads=(2, 4, 10, 16)),
        "small": dict(_hybrid, depths=(3, 12, 18, 3), channels=(64, 128, 320, 512), num_heads=(2, 4, 10, 16)),
        "base": dict(_hybrid, depths=(3, 12, 18, 3), channels=(96, 192, 384, 576), num_heads=(3, 6, 12, 18)),
    }

    def __init__(
        self,
        arch: str | dict[str, Any] = "tiny",
        *,
        attention: dict[str, Any] | None = None,
        image_size: int | Sequence[int] = 224,
        output_norm: bool = True,
        drop_path_rate: float = 0.0,
        in_channels: int = 3,
        out_indices: Sequence[int] | None = None,
        frozen_stages: int = -1,
        norm_eval: bool = False,
        with_cp: bool = False,
        init_cfg: dict | list[dict] | None = None,
    ) -> None:
        arch = self.resolve_arch(arch)
        depths, channels = arch["depths"], arch["channels"]
        num_stages = len(depths)
        super().__init__(
            num_stages=num_stages,
            out_indices=range(num_stages) if out_indices is None else out_indices,
            frozen_stages=frozen_stages,
            norm_eval=norm_eval,
            with_cp=with_cp,
            init_cfg=init_cfg,
        )
        attention = merge_attention(arch["attention"], attention)
        size = (image_size, image_size) if isinstance(image_size, int) else tuple(image_size)
        grid = tuple((n + 1) // 4 for n in size)
        self.feature_channels = tuple(channels[i] for i in self.out_indices)
        self.feature_strides = tuple(4 * 2**i for i in self.out_indices)

        rates = iter(torch.linspace(0, drop_path_rate, sum(depths), device="cpu").tolist())
        self.downsamples, self.stages = nn.ModuleList(), nn.ModuleList()
        for i in range(num_stages):
            if i == 0:
                conv = nn.Conv2d(in_channels, channels[0], 7, stride=4, padding=2)
                norm = ChannelLayerNorm(channels[0], eps=EPS, bias=False)
                self.downsamples.append(nn.Sequential(OrderedDict(conv=conv, norm=norm)))
            else:
                norm = ChannelLayerNorm(channels[i - 1], eps=EPS, bias=False)
                conv = nn.Conv2d(channels[i - 1], channels[i], 3, stride=2, padding=1)
                self.downsamples.append(nn.Sequential(OrderedDict(norm=norm, conv=conv)))
                grid = tuple(-(-n // 2) for n in grid)
            blocks = nn.ModuleList()
            for _ in range(depths[i]):
                if arch["mixers"][i] == "C":
                    mixer = SepConv(channels[i])
                else:
                    mixer = build_attention(attention, channels[i], arch["num_heads"][i], grid)
                blocks.append(Block(channels[i], mixer, arch["res_scale"][i], next(rates)))
            self.stages.append(blocks)
            if output_norm and i in self.out_indices:
                self.add_module(f"norm{i}", ChannelLayerNorm(channels[i], eps=EPS))
        self._init_layers()

    def _init_layers(self) -> None:
        """Truncated normal 0.02, as CAFormer; the operators' own parameters keep what they start from."""
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Conv2d)):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        """``[B, 3, H, W]`` -> one ``[B, C_i, H_i, W_i]`` per output stage."""
        self.check_image(image)
        x = image.contiguous(memory_format=torch.channels_last)
        maps = []
        for i, (downsample, blocks) in enumerate(zip(self.downsamples, self.stages, strict=True)):
            x = downsample(x)
            grid = x.shape[2:]
            x = to_tokens(x)
            for block in blocks:
                x = self.run_block(block, x, grid)
            x = to_map(x, grid)
            if i in self.out_indices:
                maps.append((getattr(self, f"norm{i}")(x) if hasattr(self, f"norm{i}") else x).contiguous())
        return tuple(maps)

    @property
    def embeds(self) -> nn.ModuleList:
        """CAFormer's downsamplings, under the name that the base knows."""
        return self.downsamples
