"""The skeleton of MILA and H-ViT³: a convolutional stem, inverted bottlenecks between stages, and a norm on each map."""

from abc import abstractmethod
from typing import Any, ClassVar

from torch import nn

from mmlisa.models.layers import ConvStem, InvertedMerging, build_norm, init_linear

from .base import Backbone, Stage


class ConvPyramid(Backbone):
    """Base of pyramids with a convolutional stem.

    ``forward(image: [B, 3, H, W])`` returns one map ``[B, C_i, ceil(H / s_i), ceil(W / s_i)]`` per stage in
    ``out_indices``, for any H and W of at least 32. Nothing depends on the pretraining resolution: positions come from
    convolutions, and from rotations by whole rows and columns.

    Args:
        arch: see :class:`Backbone`.
        output_norm: a LayerNorm on each returned map, as the papers' dense prediction has; False for the one norm of their
            classifiers, after the last stage.
        options: see :class:`Backbone`. The hosts say which drop path the papers have.

    Raises:
        ValueError: see :class:`Backbone`.
    """

    stem_shortcut: ClassVar[bool]
    classifier_norm: ClassVar[str]  # a type of :func:`build_norm`

    def __init__(self, arch: str | dict[str, Any], *, output_norm: bool = True, **options: Any) -> None:
        super().__init__(arch, **options)
        channels, strides = self.arch["channels"], [4 * 2**i for i in range(self.num_stages)]
        self.stem = ConvStem(self.in_channels, channels[0], shortcut=self.stem_shortcut)
        self.stages = nn.ModuleList()
        for i, drop_paths in enumerate(self.drop_paths(self.arch["depths"])):
            grid = tuple(-(-n // strides[i]) for n in self.image_size)
            merging = InvertedMerging(channels[i - 1], channels[i]) if i else None
            blocks = [self.build_block(i, rate, grid) for rate in drop_paths]
            is_last = i == self.num_stages - 1
            norm = build_norm(dict(type=self.classifier_norm), channels[i]) if is_last and not output_norm else None
            self.stages.append(Stage(blocks, downsample=merging, norm=norm, with_cp=self.with_cp))
        self.set_outputs(channels, strides, nn.LayerNorm if output_norm else None)
        init_linear(self)

    @abstractmethod
    def build_block(self, stage: int, drop_path: float, grid: tuple[int, int]) -> nn.Module:
        """A block of ``stage`` (from 0), called as ``block(x: [B, N, C], grid)``, with its rate of stochastic depth."""
