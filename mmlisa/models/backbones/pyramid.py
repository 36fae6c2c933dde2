"""The skeleton of FLatten's four pyramids: per stage an embedding, then blocks of attention and MLP, on tokens."""

from abc import abstractmethod
from collections.abc import Sequence
from math import prod, sqrt
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mmlisa.models.attention import build_attention
from mmlisa.models.layers import TokenBlock, to_map

from .base import Backbone

ATTN_TYPES = "LS"


class TokenPyramid(Backbone):
    """Base of hosts whose stages take linear attention (``L``) or the host's own (``S``).

    ``forward(image: [B, 3, H, W])`` returns one map ``[B, C_i, ceil(H / s_i), ceil(W / s_i)]`` per stage in
    ``out_indices``, for any H and W of at least 32. Parameters that depend on the position keep the size of the pretraining
    grid and are interpolated to the grid at hand.

    Args:
        arch: a name of ``arch_settings``, a dict of the same keys, or a dict with ``base='name'`` and what differs.
        attention: the operator of the ``L`` stages; the arch's own by default. Without ``type``, or with the arch's, it is a
            delta: what it leaves open stays as in the arch.
        attn_type: one letter per stage, ``L`` or ``S``; the arch's own by default.
        image_size: pretraining resolution in pixels, a number or (H, W); the arch's own by default.
        drop_path_rate: of the last block, growing linearly from 0. The hosts say which rate the paper has.
        in_channels: channels of the image.
        out_indices, frozen_stages, norm_eval, with_cp, init_cfg: see :class:`Backbone`.

    Raises:
        ValueError: an unknown arch, key or operator, an ``attn_type`` that does not fit, an index out of range, an image
            smaller than 32.
    """

    norm_eps: ClassVar[float] = 1e-5
    # Where LayerNorms follow the blocks: on the returned maps only, on every stage and what follows it, or nowhere.
    stage_norm: ClassVar[str | None] = "outputs"
    mlp_conv: ClassVar[int | None] = None

    def __init__(
        self,
        arch: str | dict[str, Any],
        *,
        attention: dict[str, Any] | None = None,
        attn_type: str | None = None,
        image_size: int | Sequence[int] | None = None,
        drop_path_rate: float = 0.0,
        in_channels: int = 3,
        out_indices: Sequence[int] = (0, 1, 2, 3),
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
            out_indices=out_indices,
            frozen_stages=frozen_stages,
            norm_eval=norm_eval,
            with_cp=with_cp,
            init_cfg=init_cfg,
        )
        attn_type = arch["attn_type"] if attn_type is None else attn_type
        if len(attn_type) != num_stages or set(attn_type) - set(ATTN_TYPES):
            raise ValueError(
                f"attn_type={attn_type!r}; it must be {num_stages} letters, one per stage: L (linear) or S (the host's own)"
            )
        linear = merge_attention(arch["attention"], attention)
        image_size = arch["image_size"] if image_size is None else image_size
        size = (image_size, image_size) if isinstance(image_size, int) else tuple(image_size)
        strides = (4, *(2,) * (num_stages - 1))
        self.feature_channels = tuple(channels[i] for i in self.out_indices)
        self.feature_strides = tuple(prod(strides[: i + 1]) for i in self.out_indices)

        rates = iter(torch.linspace(0, drop_path_rate, sum(depths), device="cpu").tolist())
        self.embeds, self.stages = nn.ModuleList(), nn.ModuleList()
        for i in range(num_stages):
            grid = tuple(-(-n // prod(strides[: i + 1])) for n in size)
            self.embeds.append(self.build_embed(i, channels[i - 1] if i else in_channels, channels[i], grid))
            blocks = nn.ModuleList()
            for j in range(depths[i]):
                cfg = linear if attn_type[i] == "L" else self.host_attention(arch, i, j)
                blocks.append(
                    TokenBlock(
                        channels[i],
                        build_attention(cfg, channels[i], arch["num_heads"][i], grid),
                        mlp_ratio=arch["mlp_ratios"][i],
                        mlp_conv=self.mlp_conv,
                        drop_path=next(rates),
                        norm_eps=self.norm_eps,
                    )
                )
            self.stages.append(blocks)
            if self.stage_norm == "stages" or (self.stage_norm == "outputs" and i in self.out_indices):
                self.add_module(f"norm{i}", nn.LayerNorm(channels[i], eps=self.norm_eps))
        self._init_layers()

    @abstractmethod
    def build_embed(self, stage: int, in_channels: int, channels: int, grid: tuple[int, int]) -> nn.Module:
        """What leads into a stage: a map ``[B, in_channels, H, W]`` -> tokens ``[B, N, channels]`` and their grid."""

    @abstractmethod
    def host_attention(self, arch: dict[str, Any], stage: int, block: int) -> dict[str, Any]:
        """Config of the host's own attention in the block number ``block`` of ``stage``, both from 0."""

    def _init_layers(self) -> None:
        """Linear: truncated normal 0.02. Convolutions keep torch's initialisation."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        """``[B, 3, H, W]`` -> one ``[B, C_i, H_i, W_i]`` per output stage."""
        self.check_image(image)
        x = image.contiguous(memory_format=torch.channels_last)
        maps = []
        for i, (embed, blocks) in enumerate(zip(self.embeds, self.stages, strict=True)):
            tokens, grid = embed(x)
            for block in blocks:
                tokens = self.run_block(block, tokens, grid)
            if self.stage_norm == "stages":
                tokens = getattr(self, f"norm{i}")(tokens)
            if i in self.out_indices:
                output = getattr(self, f"norm{i}")(tokens) if self.stage_norm == "outputs" else tokens
                maps.append(to_map(output, grid).contiguous())
            x = to_map(tokens, grid)
        return tuple(maps)


def merge_attention(default: dict[str, Any], cfg: dict[str, Any] | None) -> dict[str, Any]:
    """``cfg`` as a delta of ``default`` where it names the same operator or none, else ``cfg`` itself."""
    cfg = cfg or {}
    return {**default, **cfg} if cfg.get("type", default["type"]) == default["type"] else cfg


def init_convs_by_fan_out(model: nn.Module) -> None:
    """Convolutions normal with variance 2 / fan-out of a group, biases 0 (PVTv2)."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            fan_out = prod(module.kernel_size) * module.out_channels // module.groups
            nn.init.normal_(module.weight, std=sqrt(2 / fan_out))
            nn.init.zeros_(module.bias)
