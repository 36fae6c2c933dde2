"""Plain vision transformers (Touvron et al., "DeiT") around any attention operator."""

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from mmlisa.models.attention import build_attention
from mmlisa.models.layers import PositionResize, TokenBlock, to_map, to_tokens

from .base import Backbone
from .pyramid import merge_attention

OUT_TYPES = ("featmap", "cls_token")


class PlainViT(Backbone):
    """Base: blocks of one width at one stride; subclasses fill ``arch_settings``.

    ``forward(image: [B, 3, H, W])`` returns one normed map ``[B, C, ceil(H / p), ceil(W / p)]`` of patch size p per block in
    ``out_indices``, or, for classifiers, the class token ``[B, C]``, for any H and W of at least 32: the image is padded with
    zeros on the right and at the bottom, and the positions are interpolated. An arch may give the ``patch_size``, else 16, and
    say ``class_token=False``.

    Args:
        arch: a name of ``arch_settings``, its first by default, a dict of the same keys, or a dict with ``base='name'`` and what
            differs.
        attention: the operator of all blocks; the arch's own by default. Without ``type``, or with the arch's, it is a delta.
        image_size: pretraining resolution in pixels, a number or (H, W): the size of the positions.
        out_type: ``'featmap'`` or ``'cls_token'``.
        drop_path_rate: of the last block, growing linearly from 0.
        in_channels: channels of the image.
        out_indices: blocks whose outputs are returned; the stages of this network are its blocks.
        frozen_stages, norm_eval, with_cp, init_cfg: see :class:`Backbone`.

    Raises:
        ValueError: an unknown arch, key, operator or out type, an index out of range, an image smaller than 32.
    """

    def __init__(
        self,
        arch: str | dict[str, Any] | None = None,
        *,
        attention: dict[str, Any] | None = None,
        image_size: int | Sequence[int] = 224,
        out_type: str = "featmap",
        drop_path_rate: float = 0.0,
        in_channels: int = 3,
        out_indices: Sequence[int] = (-1,),
        frozen_stages: int = -1,
        norm_eval: bool = False,
        with_cp: bool = False,
        init_cfg: dict | list[dict] | None = None,
    ) -> None:
        arch = self.resolve_arch(arch or next(iter(self.arch_settings)))
        depth, channels = arch["depth"], arch["channels"]
        super().__init__(
            num_stages=depth,
            out_indices=out_indices,
            frozen_stages=frozen_stages,
            norm_eval=norm_eval,
            with_cp=with_cp,
            init_cfg=init_cfg,
        )
        has_class_token = arch.get("class_token", True)
        if out_type not in OUT_TYPES[: 1 + has_class_token]:
            raise ValueError(f"out_type={out_type!r}; it must be one of {OUT_TYPES[: 1 + has_class_token]}")
        self.out_type = out_type
        self.patch_size = arch.get("patch_size", 16)
        size = (image_size, image_size) if isinstance(image_size, int) else tuple(image_size)
        grid = tuple(-(-n // self.patch_size) for n in size)
        self.feature_channels = (channels,) * len(self.out_indices)
        self.feature_strides = (self.patch_size,) * len(self.out_indices)

        self.patch_embed = nn.Conv2d(in_channels, channels, self.patch_size, self.patch_size)
        self.cls_token = nn.Parameter(torch.empty(1, 1, channels)) if has_class_token else None
        self.position = nn.Parameter(torch.empty(1, has_class_token + grid[0] * grid[1], channels))
        self.resize = PositionResize(grid)
        attention = merge_attention(arch["attention"], attention)
        rates = torch.linspace(0, drop_path_rate, depth, device="cpu").tolist()
        self.blocks = nn.ModuleList(
            TokenBlock(
                channels,
                build_attention(attention, channels, arch["num_heads"], grid),
                mlp_ratio=arch["mlp_ratio"],
                mlp_conv=arch.get("mlp_conv"),
                drop_path=rate,
                norm_eps=1e-6,
            )
            for rate in rates
        )
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        for tensor in self._tokens():
            nn.init.trunc_normal_(tensor, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        """``[B, 3, H, W]`` -> one ``[B, C, H / p, W / p]``, or one ``[B, C]``, per output block."""
        self.check_image(image)
        height, width = image.shape[2:]
        x = nn.functional.pad(image, (0, -width % self.patch_size, 0, -height % self.patch_size))
        x = self.patch_embed(x)
        grid = tuple(x.shape[2:])
        x = to_tokens(x)
        if self.cls_token is not None:
            x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1)
        x = x + self.resize(self.position, grid)
        outputs = []
        for i, block in enumerate(self.blocks):
            x = self.run_block(block, x, grid)
            if i in self.out_indices:
                y = self.norm(x)
                outputs.append(
                    y[:, 0] if self.out_type == "cls_token" else to_map(y[:, -prod(grid) :], grid).contiguous()
                )
        return tuple(outputs)

    def stage_modules(self, stage: int) -> list[nn.Module | nn.Parameter]:
        if stage == 0:
            return [self.patch_embed, *self._tokens()]
        last = [self.norm] if stage == self.num_stages else []
        return [self.blocks[stage - 1], *last]

    def _tokens(self) -> list[nn.Parameter]:
        return [tensor for tensor in (self.cls_token, self.position) if tensor is not None]
