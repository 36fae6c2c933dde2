"""The plain ViTs of Kang et al., "Interactive Multi-Head Self-Attention with Linear Complexity", Tables 2 to 4."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mmlisa.models.attention import build_attention
from mmlisa.models.layers import PositionResize, TokenBlock, to_map, to_tokens
from mmlisa.registry import MODELS

from .base import Backbone
from .pyramid import merge_attention


@MODELS.register_module()
class InteractiveViT(Backbone):
    """ViT-T and ViT-S without a class token, patches of 16 or 8 pixels: a host for every operator of the registry.

    ``forward(image: [B, 3, H, W])`` returns one normed map ``[B, C, ceil(H / p), ceil(W / p)]`` of patch size p per block in
    ``out_indices``, for any H and W of at least 32: the image is padded with zeros on the right and at the bottom, and the
    positions are interpolated.

    Args:
        arch: a name of ``arch_settings``, a dict of the same keys, or a dict with ``base='name'`` and what differs.
        attention: the operator of every block; options of the paper's (``landmarks``, …) where it has no other ``type``.
        image_size: pretraining resolution in pixels, a number or (H, W): the size of the position embedding.
        drop_path_rate: of the last block, growing linearly from 0. The paper's: 0.1.
        in_channels: channels of the image.
        out_indices, frozen_stages, norm_eval, with_cp, init_cfg: see :class:`Backbone`; every block is a stage.

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
        out_indices: Sequence[int] = (-1,),
        frozen_stages: int = -1,
        norm_eval: bool = False,
        with_cp: bool = False,
        init_cfg: dict | list[dict] | None = None,
    ) -> None:
        arch = self.resolve_arch(arch)
        depth, channels, self.patch_size = arch["depth"], arch["channels"], arch["patch_size"]
        super().__init__(
            num_stages=depth,
            out_indices=out_indices,
            frozen_stages=frozen_stages,
            norm_eval=norm_eval,
            with_cp=with_cp,
            init_cfg=init_cfg,
        )
        self.feature_channels = (channels,) * len(self.out_indices)
        self.feature_strides = (self.patch_size,) * len(self.out_indices)
        size = (image_size, image_size) if isinstance(image_size, int) else tuple(image_size)
        grid = tuple(-(-n // self.patch_size) for n in size)

        self.patch_embed = nn.Conv2d(in_channels, channels, self.patch_size, self.patch_size)
        self.position = nn.Parameter(torch.empty(1, grid[0] * grid[1], channels))
        self.resize = PositionResize(grid)
        attention = merge_attention(arch["attention"], attention)
        rates = torch.linspace(0, drop_path_rate, depth, device="cpu").tolist()
        self.blocks = nn.ModuleList(
            TokenBlock(
                channels,
                build_attention(attention, channels, arch["num_heads"], grid),
                mlp_ratio=4,
                drop_path=rate,
                norm_eps=1e-6,
            )
            for rate in rates
        )
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self._init_layers()

    def _init_layers(self) -> None:
        """Truncated normal 0.02, as DeiT, whose recipe Tables 2 to 4 follow; the patch projection keeps PyTorch's."""
        nn.init.trunc_normal_(self.position, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        """``[B, 3, H, W]`` -> one ``[B, C, H / p, W / p]`` per output block."""
        self.check_image(image)
        height, width = image.shape[2:]
        x = nn.functional.pad(image, (0, -width % self.patch_size, 0, -height % self.patch_size))
        x = self.patch_embed(x)
        grid = tuple(x.shape[2:])
        x = to_tokens(x) + self.resize(self.position, grid)
        maps = []
        for i, block in enumerate(self.blocks):
            x = self.run_block(block, x, grid)
            if i in self.out_indices:
                maps.append(to_map(self.norm(x), grid).contiguous())
        return tuple(maps)

    def stage_modules(self, stage: int) -> list[nn.Module | nn.Parameter]:
        if stage == 0:
            return [self.patch_embed, self.position]
        return [self.blocks[stage - 1], *([self.norm] if stage == self.num_stages else [])]
