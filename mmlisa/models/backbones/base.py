"""The base of all backbones: a stem, stages of blocks, and one map per returned stage."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import torch
from mmengine.model import BaseModule
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from mmlisa.models.arch import check_stages, look_up_arch, parse_image_size
from mmlisa.models.init_cfg import loading_from_init_cfg
from mmlisa.models.layers import norm_tokens, to_map, to_tokens

MIN_IMAGE_SIZE = 32
# By the axes of the grid. In this memory format, conversions between maps and tokens are views.
_CHANNELS_LAST = {2: torch.channels_last, 3: torch.channels_last_3d}


def _name(kind: Any) -> Any:
    """Return the registered name of a ``type``, which may be the class itself, as in MMEngine's new-style configs."""
    return kind.__name__ if isinstance(kind, type) else kind


def keep_frozen(model: nn.Module, parts: Iterable[nn.Module], norm_eval: bool) -> None:
    """Freeze ``parts`` and set them to evaluation; with ``norm_eval``, set all batch norms of ``model`` to evaluation, too."""
    for part in parts:
        part.requires_grad_(False).eval()
    if norm_eval:
        for module in model.modules():
            if isinstance(module, _BatchNorm):
                module.eval()


class Stage(nn.Module):
    """A downsampling, blocks and a norm, each of them optional.

    Args:
        blocks: each called as ``block(x: [B, N, C], grid) -> [B, N, C]``.
        downsample: a module from maps ``[B, C_in, *grid]`` to tokens ``[B, N, C]`` and their grid, or a list of convolutional
            blocks from maps to maps.
        norm: of the tokens that the stage returns.
        with_cp: recompute each block in the backward pass to save memory; see :meth:`run`.
    """

    def __init__(
        self,
        blocks: Iterable[nn.Module] = (),
        *,
        downsample: nn.Module | list[nn.Module] | None = None,
        norm: nn.Module | None = None,
        with_cp: bool = False,
    ) -> None:
        super().__init__()
        self.downsample = nn.ModuleList(downsample) if isinstance(downsample, list) else downsample
        self.blocks, self.norm = nn.ModuleList(blocks), norm
        self.with_cp = with_cp

    def forward(self, x: Tensor, grid: tuple[int, ...]) -> tuple[Tensor, tuple[int, ...]]:
        """Tokens ``[B, N, C_in]`` and their grid -> ``[B, N', C]`` and theirs."""
        x, grid = self.enter(x, grid)
        for block in self.blocks:
            x = self.run(block, x, grid)
        return (x if self.norm is None else norm_tokens(self.norm, x)), grid

    def enter(self, x: Tensor, grid: tuple[int, ...]) -> tuple[Tensor, tuple[int, ...]]:
        """Downsample: tokens ``[B, N, C_in]`` and their grid -> ``[B, N', C]`` and theirs."""
        if isinstance(self.downsample, nn.ModuleList):
            x = to_map(x, grid)
            for block in self.downsample:
                x = self.run(block, x)
            return to_tokens(x), x.shape[2:]
        return (x, grid) if self.downsample is None else self.run(self.downsample, to_map(x, grid))

    def run(self, layer: nn.Module, *args: Any) -> Any:
        """Call a layer of this stage; ``with_cp`` recomputes it in the backward pass.

        Layers with batch norms in training mode are not recomputed: running statistics would be updated twice.
        """
        if not (self.with_cp and self.training and torch.is_grad_enabled()) or any(
            isinstance(module, _BatchNorm) and module.training for module in layer.modules()
        ):
            return layer(*args)
        return checkpoint(layer, *args, use_reentrant=False)


class Backbone(BaseModule):
    """Base of all backbones.

    A subclass fills ``arch_settings``. Its constructor calls this one, sets ``stem`` (image -> tokens and their grid) and
    ``stages``, and calls :meth:`set_outputs`.

    Args:
        arch: a name of ``arch_settings``, a dict of the same keys, or a dict with ``base='name'`` and the keys that differ.
        attention: options merged over the arch's operator config, unless it sets another ``type``.
        image_size: pretraining resolution in pixels, a number or (H, W): the size of position-dependent parameters. None for the
            arch's own, else 224.
        drop_path_rate: stochastic depth of the last block, growing linearly from 0.
        in_channels: channels of the image.
        out_indices: stages whose maps are returned; negative ones count from the end. None for all. Stages after the last of them
            are neither run nor trained.
        frozen_stages: -1 trains everything, 0 freezes the stem, n > 0 also the first n stages.
        norm_eval: batch norms keep their running statistics during training.
        with_cp: recompute blocks without batch norms in the backward pass to save memory.
        init_cfg: MMEngine's.

    Raises:
        TypeError: an unknown option.
        ValueError: an unknown arch, key or operator; a number or an index out of range.
    """

    arch_settings: ClassVar[dict[str, dict[str, Any]]] = {}
    image_axes: ClassVar[tuple[int, ...]] = (2,)  # 3 for hosts that also take videos [B, 3, T, H, W]
    no_decay: ClassVar[tuple[str, ...]] = ()  # parts of names, see :meth:`no_weight_decay`
    num_extra_tokens: int = 0  # prefix (class) tokens of the blocks; mmpretrain's vis_cam reads it
    feature_channels: tuple[int, ...]
    feature_strides: tuple[int, ...]
    stage_channels: tuple[int, ...]
    stage_strides: tuple[int, ...]

    def __init__(
        self,
        arch: str | dict[str, Any],
        *,
        attention: dict[str, Any] | None = None,
        image_size: int | Sequence[int] | None = None,
        drop_path_rate: float = 0.0,
        in_channels: int = 3,
        out_indices: int | Sequence[int] | None = None,
        frozen_stages: int = -1,
        norm_eval: bool = False,
        with_cp: bool = False,
        init_cfg: dict[str, Any] | list[dict[str, Any]] | None = None,
    ) -> None:
        super().__init__(init_cfg=init_cfg)
        self.arch = self.resolve_arch(arch)
        self.attention = self.resolve_attention(self.arch.get("attention"), attention)
        image_size = self.arch.get("image_size", 224) if image_size is None else image_size
        self.image_size = parse_image_size(image_size, self.image_axes)
        if not 0 <= drop_path_rate < 1:
            raise ValueError(f"drop_path_rate={drop_path_rate!r}; it must be at least 0 and less than 1")
        self.drop_path_rate, self.in_channels = drop_path_rate, in_channels
        self.num_stages = num_stages = self.count_stages(self.arch)
        if out_indices is None:
            out_indices = range(num_stages)
        out_indices = [out_indices] if isinstance(out_indices, int) else out_indices
        if not out_indices or not all(-num_stages <= i < num_stages for i in out_indices):
            raise ValueError(f"out_indices={out_indices!r}; a network of {num_stages} stages has 0 to {num_stages - 1}")
        if not -1 <= frozen_stages <= num_stages:
            raise ValueError(f"frozen_stages={frozen_stages!r}; it must lie between -1 (none) and {num_stages} (all)")
        self.out_indices = tuple(sorted({i % num_stages for i in out_indices}))
        self.frozen_stages, self.norm_eval, self.with_cp = frozen_stages, norm_eval, with_cp

    @classmethod
    def resolve_arch(cls, arch: str | dict[str, Any]) -> dict[str, Any]:
        """Return the checked settings of an arch; see :func:`look_up_arch`."""
        resolved = look_up_arch(arch, cls.arch_settings, cls.__name__)
        cls.check_arch(resolved)
        return resolved

    @classmethod
    def check_arch(cls, arch: dict[str, Any]) -> None:
        """Raise ValueError for an invalid value; see :func:`check_stages`."""
        check_stages(arch, cls.arch_settings, cls.count_stages(arch))

    @classmethod
    def count_stages(cls, arch: dict[str, Any]) -> int:
        """Return the number of stages, the bound of ``out_indices`` and ``frozen_stages``."""
        return len(arch["depths"])

    @classmethod
    def resolve_attention(cls, default: dict[str, Any] | None, attention: dict[str, Any] | None) -> dict[str, Any]:
        """Merge ``attention`` over the arch's operator config, unless it sets another ``type``.

        Raises:
            TypeError: ``attention`` is not a dict.
            ValueError: this host has no attention.
        """
        if attention is None:
            return default or {}
        if not isinstance(attention, dict):
            raise TypeError(f"attention={attention!r}; it must be a dict such as dict(type='SoftmaxAttention')")
        if default is None:
            raise ValueError(f"attention={attention!r}; {cls.__name__} has no attention to replace")
        kind = _name(default.get("type"))  # an arch without one is refused when the operator is built
        same = _name(attention.get("type", kind)) in (kind, f"mmlisa.{kind}")
        return {**default, **attention} if same else dict(attention)

    def drop_paths(self, depths: Sequence[int]) -> list[list[float]]:
        """Return a list of rates of stochastic depth per stage; they grow linearly over all blocks."""
        rates = iter(torch.linspace(0, self.drop_path_rate, sum(depths), device="cpu").tolist())
        return [[next(rates) for _ in range(depth)] for depth in depths]

    def set_outputs(
        self, channels: Sequence[int], strides: Sequence[int], norm: Callable[[int], nn.Module] | None = None
    ) -> None:
        """Set the channels and strides of the returned maps, give each of them a norm, and freeze ``frozen_stages``.

        Args:
            channels, strides: one entry per stage.
            norm: makes a norm over a number of channels; None for maps without a norm.
        """
        self.stage_channels, self.stage_strides = tuple(channels), tuple(strides)
        self.feature_channels = tuple(channels[i] for i in self.out_indices)
        self.feature_strides = tuple(strides[i] for i in self.out_indices)
        if norm is not None:
            for i in self.out_indices:
                self.add_module(f"norm{i}", norm(channels[i]))
        self.train()  # DistributedDataParallel registers the parameters that are not frozen when it wraps the model

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        """``[B, 3, H, W]`` -> one ``[B, C_i, H_i, W_i]`` per output stage.

        Raises:
            ValueError: an image smaller than 32 in height or width.
        """
        x, grid = self.embed(image)
        maps = []
        for i in range(self.out_indices[-1] + 1):
            x, grid = self.stages[i](x, grid)
            if i in self.out_indices:
                maps.append(self.to_output(self.norm_output(x, i), grid))
        return tuple(maps)

    def embed(self, image: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        """Run the stem: ``[B, 3, H, W]`` -> tokens ``[B, N, C]`` and their grid.

        Raises:
            ValueError: see :meth:`forward`.
        """
        # Each size is compared alone: a comparison of the two would become a condition of an exported graph.
        if any(size < MIN_IMAGE_SIZE for size in image.shape[-2:]):
            height, width = image.shape[-2:]
            raise ValueError(f"image is {height}x{width} (H x W); it needs at least {MIN_IMAGE_SIZE} in both")
        return self.stem(image.contiguous(memory_format=_CHANNELS_LAST[len(self.image_size)]))

    def norm_output(self, x: Tensor, stage: int) -> Tensor:
        """Apply the norm of the map of ``stage`` (from 0), if it has one, to tokens ``[B, N, C]``."""
        norm = getattr(self, f"norm{stage}", None)
        return x if norm is None else norm_tokens(norm, x)

    def to_output(self, x: Tensor, grid: tuple[int, ...]) -> Tensor:
        """Tokens ``[B, N, C]`` -> the returned map ``[B, C, *grid]``."""
        # mmcv's compiled operators (RoIAlign) assume contiguous NCHW and do not check.
        return to_map(x, grid).contiguous()

    def stage_modules(self, stage: int) -> list[nn.Module]:
        """Modules of the stem (``stage=0``) or of the stage number ``stage`` (from 1) with the norm of its map."""
        if stage == 0:
            return [self.stem]
        norm = getattr(self, f"norm{stage - 1}", None)
        return [self.stages[stage - 1], *([] if norm is None else [norm])]

    def layer_names(self) -> list[list[str]]:
        """Names of each stage's layers in the order of the forward pass: its convolutional blocks, then its blocks."""
        return [
            [
                f"stages.{i}.{part}.{j}."
                for part in ("downsample", "blocks")
                if isinstance(layers := getattr(stage, part), nn.ModuleList)
                for j in range(len(layers))
            ]
            for i, stage in enumerate(self.stages)
        ]

    def get_layer_depth(self, param_name: str, prefix: str = "") -> tuple[int, int]:
        """Layer of a parameter and the number of layers, for learning rates that decay from layer to layer.

        The stem is layer 0, each block is a layer of its own, and the norms of the returned maps belong to the last layer, as do
        parameters outside of the backbone. A downsampling belongs to the first block of its stage. This is the interface of
        mmpretrain's backbones.

        Args:
            param_name: name of the parameter in the whole model.
            prefix: what names of this backbone's parameters begin with there, such as ``"backbone."``.
        """
        depth, depths = 1, {"stem.": 0}
        for i, layers in enumerate(self.layer_names()[: self.out_indices[-1] + 1]):
            depths[f"stages.{i}.downsample."] = depth
            depths |= {layer: depth + j for j, layer in enumerate(layers)}
            depth += len(layers)
            depths[f"stages.{i}."] = depth - 1  # the norm at the end of the stage
        name = param_name.removeprefix(prefix)
        found = [part for part in depths if name.startswith(part)] if param_name.startswith(prefix) else []
        return (depths[max(found, key=len)] if found else depth), depth + 1

    def no_weight_decay(self) -> set[str]:
        """Return the names of parameters that do not decay in the ImageNet recipe, beside those of one axis and biases."""
        return {name for name, _ in self.named_parameters() if any(part in name for part in self.no_decay)}

    def train(self, mode: bool = True) -> "Backbone":
        super().train(mode)
        frozen = [part for stage in range(self.frozen_stages + 1) for part in self.stage_modules(stage)]
        unused = self.stages[self.out_indices[-1] + 1 :]  # DistributedDataParallel fails on unused parameters
        keep_frozen(self, (*frozen, *unused), self.norm_eval)
        return self

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Recompute the blocks in the backward pass to save memory, as ``with_cp`` does."""
        self.with_cp = enable
        for stage in self.stages:
            stage.with_cp = enable

    def init_weights(self) -> None:
        """Initialise as MMEngine does, but read the files that ``init_cfg`` names safely, and only once.

        Raises:
            ValueError: a file that fills less than half of the network, with the counts; see
                :func:`mmlisa.models.init_cfg.loading_from_init_cfg`.
        """
        with loading_from_init_cfg(self):
            super().init_weights()
