"""The skeleton of FLatten's four pyramids: per stage an embedding, then blocks of attention and MLP."""

from abc import abstractmethod
from functools import partial
from typing import Any, ClassVar

from torch import nn

from mmlisa.models.arch import parse_mixers
from mmlisa.models.attention import build_attention
from mmlisa.models.layers import Block, LayerNorm, init_linear

from .base import Backbone, Stage


class TokenPyramid(Backbone):
    """Base of hosts whose stages take the operator of ``attention`` (``A``) or the host's own attention (``S``).

    ``forward(image: [B, 3, H, W])`` returns one map ``[B, C_i, ceil(H / s_i), ceil(W / s_i)]`` per stage in
    ``out_indices``, for any H and W of at least 32. Parameters that depend on the position keep the size of the pretraining
    grid and are interpolated to the grid at hand.

    Args:
        arch: see :class:`Backbone`.
        attention: see :class:`Backbone`; ``shift=True``, of an operator with windows, shifts those of every second block.
        attn_type: one letter per stage, ``A`` (or ``L`` for linear, as in the paper) or ``S``; the arch's own by default.
        options: see :class:`Backbone`. The hosts say which drop path the paper has.

    Raises:
        ValueError: see :class:`Backbone`; an ``attn_type`` that does not fit.
    """

    norm_eps: ClassVar[float] = 1e-5
    # LayerNorms behind the blocks: "outputs" on the returned maps only, "stages" at the end of every stage, None nowhere.
    stage_norm: ClassVar[str | None] = "outputs"
    mlp_conv: ClassVar[int | None] = None

    def __init__(self, arch: str | dict[str, Any], *, attn_type: str | None = None, **options: Any) -> None:
        super().__init__(arch, **options)
        arch, channels = self.arch, self.arch["channels"]
        attn_type = arch["attn_type"] if attn_type is None else attn_type
        mixers = parse_mixers("attn_type", attn_type, self.num_stages, "AS")
        norm = partial(LayerNorm, eps=self.norm_eps)
        strides = [4 * 2**i for i in range(self.num_stages)]
        self.stages = nn.ModuleList()
        for i, drop_paths in enumerate(self.drop_paths(arch["depths"])):
            grid = tuple(-(-n // strides[i]) for n in self.image_size)
            embed = self.build_embed(i, channels[i - 1] if i else self.in_channels, channels[i], grid)
            if i == 0:
                self.stem, embed = embed, None
            blocks = []
            for j, rate in enumerate(drop_paths):
                cfg = self.linear_attention(j) if mixers[i] == "A" else self.host_attention(i, j)
                blocks.append(
                    Block(
                        channels[i],
                        build_attention(cfg, channels[i], arch["num_heads"][i], grid),
                        mlp_ratio=arch["mlp_ratios"][i],
                        mlp_conv=self.mlp_conv,
                        drop_path=rate,
                        norm=norm,
                    )
                )
            stage_norm = norm(channels[i]) if self.stage_norm == "stages" else None
            self.stages.append(Stage(blocks, downsample=embed, norm=stage_norm, with_cp=self.with_cp))
        self.set_outputs(channels, strides, norm if self.stage_norm == "outputs" else None)
        init_linear(self)

    @abstractmethod
    def build_embed(self, stage: int, in_channels: int, channels: int, grid: tuple[int, int]) -> nn.Module:
        """Build the embedding before a stage: a map ``[B, in_channels, H, W]`` -> tokens ``[B, N, channels]`` and their grid."""

    def linear_attention(self, block: int) -> dict[str, Any]:
        """Config of the operator in the block number ``block`` of a stage; windows that shift do so in every second one."""
        shift = dict(shift=block % 2 == 1) if self.attention.get("shift") else {}
        return {**self.attention, **shift}

    @abstractmethod
    def host_attention(self, stage: int, block: int) -> dict[str, Any]:
        """Config of the host's own attention in the block number ``block`` of ``stage``, both from 0."""
