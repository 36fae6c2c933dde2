"""The plain ViTs of Kang et al., "Interactive Multi-Head Self-Attention with Linear Complexity", Tables 2 to 4."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from timm.layers import DropPath, Mlp, resample_abs_pos_embed
from torch import Tensor, nn

from mmlisa.models.attention import build_attention
from mmlisa.models.layers import as_map
from mmlisa.registry import MODELS

from .base import Backbone


class Block(nn.Module):
    """``x + DropPath(attention(norm(x)))``, ``x + DropPath(MLP(norm(x)))``, on ``[B, N, C]``."""

    def __init__(self, channels: int, attention: nn.Module, drop_path: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(channels, eps=1e-6)
        self.attn = attention
        self.norm2 = nn.LayerNorm(channels, eps=1e-6)
        self.mlp = Mlp(channels, 4 * channels)
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor, grid: tuple[int, int]) -> Tensor:
        x = x + self.drop_path(self.attn(self.norm1(x), grid))
        return x + self.drop_path(self.mlp(self.norm2(x)))


@MODELS.register_module()
class InteractiveViT(Backbone):
    """ViT-T and ViT-S without a class token, patches of 16 or 8 pixels: a host for every operator of the registry.

    ``forward(image: [B, 3, H, W])`` returns one normed map ``[B, C, ceil(H / p), ceil(W / p)]`` of patch size p, for any H and W
    of at least 32: the image is padded with zeros on the right and at the bottom, and the positions are interpolated.

    Args:
        arch: a name of ``arch_settings``, a dict of the same keys, or a dict with ``base='name'`` and what differs.
        attention: the operator of every block; the paper's by default.
        image_size: pretraining resolution in pixels, a number or (H, W): the size of the position embedding.
        drop_path_rate: of the last block, growing linearly from 0. The paper's: 0.1.
        in_channels: channels of the image.
        out_indices, frozen_stages, norm_eval, with_cp, init_cfg: see :class:`Backbone`; the blocks are one stage.

    Raises:
        ValueError: an unknown arch, key or operator, an index out of range, an image smaller than 32.
    """

    # Projections with biases, as in DeiT, whose recipe the tables follow.
    _vit: ClassVar[dict[str, Any]] = dict(
        depth=12, attention=dict(type="InteractiveAttention", landmarks=64, qkv_bias=True, proj_bias=True)
    )
    arch_settings: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny-16": dict(_vit, channels=192, num_heads=3, patch_size=16),
        "tiny-8": dict(_vit, channels=192, num_heads=3, patch_size=8),
        "small-16": dict(_vit, channels=384, num_heads=6, patch_size=16),
        "small-8": dict(_vit, channels=384, num_heads=6, patch_size=8),
    }

    def __init__(
        self,
        arch: str | dict[str, Any] = "tiny-16",
        *,
        attention: dict[str, Any] | None = None,
        image_size: int | Sequence[int] = 224,
        drop_path_rate: float = 0.0,
        in_channels: int = 3,
        out_indices: Sequence[int] = (0,),
        frozen_stages: int = -1,
        norm_eval: bool = False,
        with_cp: bool = False,
        init_cfg: dict | list[dict] | None = None,
    ) -> None:
        arch = self.resolve_arch(arch)
        super().__init__(
            num_stages=1,
            out_indices=out_indices,
            frozen_stages=frozen_stages,
            norm_eval=norm_eval,
            with_cp=with_cp,
            init_cfg=init_cfg,
        )
        channels, self.patch_size = arch["channels"], arch["patch_size"]
        self.feature_channels, self.feature_strides = (channels,), (self.patch_size,)
        size = (image_size, image_size) if isinstance(image_size, int) else tuple(image_size)
        self.grid = tuple(-(-n // self.patch_size) for n in size)

        self.patch_embed = nn.Conv2d(in_channels, channels, self.patch_size, stride=self.patch_size)
        self.pos_embed = nn.Parameter(torch.empty(1, self.grid[0] * self.grid[1], channels))
        rates = torch.linspace(0, drop_path_rate, arch["depth"], device="cpu").tolist()
        self.blocks = nn.ModuleList(
            Block(
                channels,
                build_attention(attention or arch["attention"], channels, arch["num_heads"], self.grid),
                rate,
            )
            for rate in rates
        )
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self._init_layers()

    def _init_layers(self) -> None:
        """Truncated normal 0.02, as DeiT, whose recipe Tables 2 to 4 follow; the patch projection keeps PyTorch's."""
        nn.init.trunc_normal_(self.pos_embed, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, image: Tensor) -> tuple[Tensor]:
        """``[B, 3, H, W]`` -> ``([B, C, H_1, W_1],)``."""
        self.check_image(image)
        height, width = image.shape[2:]
        x = self.patch_embed(F.pad(image, (0, -width % self.patch_size, 0, -height % self.patch_size)))
        grid = tuple(x.shape[2:])
        x = x.flatten(2).transpose(1, 2) + self._positions(grid)
        for block in self.blocks:
            x = self.run_block(block, x, grid)
        return (as_map(self.norm(x), grid).contiguous(),)

    def _positions(self, grid: tuple[int, int]) -> Tensor:
        """The position embedding on ``grid``, ``[1, N, C]``, by timm's antialiased bicubic interpolation."""
        return resample_abs_pos_embed(self.pos_embed, list(grid), list(self.grid), num_prefix_tokens=0)

    def stage_modules(self, stage: int) -> list[nn.Module | nn.Parameter]:
        return [self.patch_embed, self.pos_embed] if stage == 0 else [self.blocks, self.norm]
