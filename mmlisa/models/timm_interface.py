"""timm's interface of a network: intermediate maps, pruning, groups of parameters, another image size, published weights."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from timm.models import FeatureInfo, register_notrace_module
from timm.models._features import feature_take_indices
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from mmlisa.registry import WEIGHT_INITIALIZERS

from .backbones.base import Backbone
from .feature_maps import FeatureMap, all_stages, backbone_class
from .layers import ResizeOnLoad, to_map

PREFIX = "backbone."
FORMATS = ("NCHW", "NLC")


class TimmInterface(nn.Module):
    """Base of modules with the interface of timm's networks around ``self.backbone``.

    A level is a stage; in networks of a single stage it is a block. The blocks of a plain ViT are its stages, so that plain
    networks have a level per block, all at one stride.

    Args:
        backbone, arch: registered name and named arch.
        no_decay: parts of the names of parameters without weight decay.
        in_chans: channels of the image.
        img_size: pretraining resolution in pixels, a number or (H, W); None for the arch's own.
        output_stride: not supported.
        options: the backbone's.

    Attributes:
        feature_info: for each level ``num_chs``, ``reduction``, ``index`` and ``module``, the name of the module that returns its
            tokens ``[B, N, C]`` (a map ``[B, C, H, W]`` in convolutional stages).

    Raises:
        ValueError: ``output_stride`` is given; see :class:`Backbone`.
    """

    feature_info: list[dict[str, Any]] | FeatureInfo

    def __init__(
        self,
        backbone: str,
        arch: str,
        *,
        no_decay: Collection[str] = (),
        in_chans: int = 3,
        img_size: int | Sequence[int] | None = None,
        output_stride: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        if output_stride is not None:
            raise ValueError(
                f"output_stride={output_stride!r}: the strides of these networks are fixed; omit it, and take finer maps with "
                "features_only=True and out_indices"
            )
        if img_size is not None:
            options["image_size"] = img_size
        self.in_chans, self.no_decay = in_chans, no_decay
        self._options = dict(arch=arch, in_channels=in_chans, **options)
        self.backbone = backbone_class(backbone)(**self._options)
        if backbone == "FLattenPVT":  # its norm is never applied, and timm expects a gradient of every parameter
            _to_buffers(self.backbone.norm)
        self.level_info = _level_info(self.backbone, all_stages(backbone, arch))
        # torch.fx takes these modules as they are: their operations depend on the shape.
        parts = [self.backbone.stem]
        for i, stage in enumerate(self.backbone.stages):
            downsample = stage.downsample if isinstance(stage.downsample, nn.ModuleList) else [stage.downsample]
            parts += [*downsample, *stage.blocks, stage.norm, getattr(self.backbone, f"norm{i}", None)]
        for kind in {type(part) for part in parts if part is not None}:
            register_notrace_module(kind)

    def forward_intermediates(
        self,
        x: Tensor,
        indices: int | Sequence[int] | None = None,
        return_prefix_tokens: bool = False,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
        output_dict: bool = False,
    ) -> list[Any] | tuple[Tensor, list[Any]] | dict[str, Any]:
        """The outputs of the levels, and the last one as ``forward_features`` returns it.

        Args:
            x: image ``[B, in_chans, H, W]``.
            indices: levels; a number n for the last n, None for all.
            return_prefix_tokens: of networks with a class token, return pairs of a map and the prefix tokens ``[B, 1, C]``.
            norm: apply the norms of the backbone's maps.
            stop_early: skip the levels after the last of ``indices``; the last output is then that level's.
            output_fmt: ``'NCHW'`` for maps ``[B, C, H, W]``, ``'NLC'`` for tokens ``[B, H W, C]``.
            intermediates_only: return the list alone.
            output_dict: return a dict of ``image_features``, ``image_intermediates``, ``image_intermediates_prefix``.

        Raises:
            ValueError: another format.
            AssertionError: an index out of range (timm's).
        """
        if output_fmt not in FORMATS:
            raise ValueError(f"output_fmt={output_fmt!r}; it must be one of {FORMATS}")
        levels, prefix = self.levels(), self.backbone.num_extra_tokens
        taken, last = feature_take_indices(len(levels), indices)
        maps, prefixes = [], []
        levels = levels[: last + 1] if stop_early else levels
        x, grid = self.backbone.embed(x)
        for i, level in enumerate(levels):
            x, grid = level(x, grid)
            if i in taken:
                tokens = self.norm_level(x, i) if norm else x
                prefixes.append(tokens[:, :prefix])
                tokens = tokens[:, prefix:] if prefix else tokens
                maps.append(tokens if output_fmt == "NLC" else to_map(tokens, grid).contiguous())
        with_prefix = bool(prefix) and return_prefix_tokens
        if output_dict:
            outputs = {} if intermediates_only else {"image_features": self.to_features(x, grid, len(levels) - 1)}
            outputs["image_intermediates"] = maps
            return {**outputs, "image_intermediates_prefix": prefixes} if with_prefix else outputs
        maps = list(zip(maps, prefixes, strict=True)) if with_prefix else maps
        return maps if intermediates_only else (self.to_features(x, grid, len(levels) - 1), maps)

    def levels(self) -> list[Callable[[Tensor, tuple[int, ...]], tuple[Tensor, tuple[int, ...]]]]:
        """Functions from tokens ``[B, N, C]`` and their grid to those of the next level."""
        if self.backbone.num_stages > 1:
            return list(self.backbone.stages)
        (stage,) = self.backbone.stages  # it has no downsampling and no norm

        def level(block: nn.Module) -> Callable[..., Any]:
            return lambda x, grid: (stage.run(block, x, grid), grid)

        return [level(block) for block in stage.blocks]

    def norm_level(self, x: Tensor, level: int) -> Tensor:
        """Apply the norm of the map of a level, if the backbone has one, to tokens ``[B, N, C]``."""
        return self.backbone.norm_output(x, min(level, self.backbone.num_stages - 1))

    def to_features(self, x: Tensor, grid: tuple[int, ...], level: int) -> Tensor:
        """Tokens ``[B, N, C]`` of a level -> its normed map ``[B, C, H, W]``; with a class token the normed tokens."""
        x = self.norm_level(x, level)
        return x if self.backbone.num_extra_tokens else to_map(x, grid).contiguous()

    def group_matcher(self, coarse: bool = False) -> Callable[[str], int] | dict[str, Any]:
        """Groups of parameters from the stem to the head, for timm's layer-wise learning rates.

        Returns:
            The layer of a parameter's name, as the backbone's ``get_layer_depth`` counts; with ``coarse`` timm's patterns for a
            group per stage.
        """
        if coarse:
            return dict(stem=r"^backbone\.stem\.", blocks=[(r"^backbone\.stages\.(\d+)\.", None)])
        return lambda name: self.backbone.get_layer_depth(name, PREFIX)[0]

    def no_weight_decay(self) -> set[str]:
        """Names of parameters that do not decay in the ImageNet recipe, beside those of one axis and biases."""
        return {name for name, _ in self.named_parameters() if any(part in name for part in self.no_decay)}

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Recompute the blocks in the backward pass to save memory."""
        self.backbone.set_grad_checkpointing(enable)

    def set_input_size(
        self, img_size: int | Sequence[int] | None = None, patch_size: int | Sequence[int] | None = None
    ) -> None:
        """Resample the parameters that depend on the grid for another pretraining resolution, in place.

        The result equals a network that is built with ``img_size`` and loads the weights of this one. Networks accept images of
        any size without it.

        Args:
            img_size: pixels, a number or (H, W); None keeps the resolution.
            patch_size: not supported.

        Raises:
            ValueError: ``patch_size`` is given; an invalid size.
        """
        if patch_size is not None:
            raise ValueError(f"patch_size={patch_size!r}: the patches of these networks are fixed; set img_size only")
        if img_size is None:
            return
        backbone, options = self.backbone, {**self._options, "image_size": img_size}
        with torch.device("meta"):
            before, after = type(backbone)(**self._options), type(backbone)(**options)
        ours, news = dict(backbone.named_modules()), dict(after.named_modules())
        if (olds := dict(before.named_modules())).keys() != news.keys():
            raise ValueError(
                f"img_size={img_size!r}: this network has other layers at that size, because windows there cover the whole map; "
                "create it with img_size instead"
            )
        for name in ours.keys() & olds.keys():
            _follow_size(ours[name], olds[name], news[name])
        self._options = options
        size = {"img_size": backbone.image_size}
        # timm's names, for its export to the Hub
        self._traits, self._model_args = ({**getattr(self, key, {}), **size} for key in ("_traits", "_model_args"))

    def load_pretrained(self, file: str) -> None:
        """Load a file or another source; see ``mmlisa.PublishedWeights``."""
        WEIGHT_INITIALIZERS.build(dict(type="mmlisa.PublishedWeights", source=str(file)))(self)


def _to_buffers(module: nn.Module) -> None:
    for name, parameter in list(module.named_parameters()):
        delattr(module, name)
        module.register_buffer(name, parameter.detach())


def _follow_size(ours: nn.Module, old: nn.Module, new: nn.Module) -> None:
    """Give ``ours`` the values that differ between ``old`` and ``new``, which are built for two resolutions."""
    for key, value in vars(new).items():
        if isinstance(value, int | tuple) and not key.startswith("_") and value != getattr(old, key):
            setattr(ours, key, value)
    for key in new.on_grid if isinstance(new, ResizeOnLoad) else ():
        before, after = getattr(old, key), getattr(new, key)
        if after is not None and (old.grid != new.grid or after.shape != before.shape):
            parameter = getattr(ours, key)
            setattr(ours, key, nn.Parameter(new.fit(key, parameter.detach(), old.grid), parameter.requires_grad))


def _level_info(backbone: Backbone, stages: Sequence[FeatureMap]) -> list[dict[str, Any]]:
    layers = [[name.removesuffix(".") for name in names] for names in backbone.layer_names()]
    if len(stages) == 1:
        names, stages = layers[0], list(stages) * len(layers[0])
    else:
        names = [  # batch norms return another shape, see norm_tokens
            names[-1] if stage.norm is None or isinstance(stage.norm, _BatchNorm) else f"stages.{i}.norm"
            for i, (names, stage) in enumerate(zip(layers, backbone.stages, strict=True))
        ]
    return [
        dict(num_chs=one.channels, reduction=one.stride, module=f"{PREFIX}{name}", index=i)
        for i, (one, name) in enumerate(zip(stages, names, strict=True))
    ]
