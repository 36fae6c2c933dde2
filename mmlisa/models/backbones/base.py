"""The base of all backbones: a stem, stages of blocks, and one map per returned stage."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from mmengine.model import BaseModule
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from mmlisa.errors import UserError
from mmlisa.models.arch import check_options, check_stages, look_up_arch, parse_image_size, parse_mixers
from mmlisa.models.init_cfg import loading_from_init_cfg
from mmlisa.models.layers.init import init_linear
from mmlisa.models.layers.tokens import ConvStack, norm_tokens, to_map
from mmlisa.models.published import Network, Rules

MIN_IMAGE_SIZE = 32
# By the axes of the grid. In this memory format, conversions between maps and tokens are views.
_CHANNELS_LAST = {2: torch.channels_last, 3: torch.channels_last_3d}


def _name(operator: Any) -> Any:
    """Return the registered name of a ``type``, which may be the class itself, as in MMEngine's new-style configs."""
    return operator.__name__ if isinstance(operator, type) else operator


def keep_frozen(model: nn.Module, frozen: Iterable[nn.Module], norm_eval: bool) -> None:
    """Freeze the modules ``frozen`` and set them to evaluation, and with ``norm_eval`` all batch norms of ``model``."""
    for module in frozen:
        module.requires_grad_(False).eval()
    if norm_eval:
        for module in model.modules():
            if isinstance(module, _BatchNorm):
                module.eval()


class Stage(nn.Module):
    """A downsampling, blocks and a norm, each of them optional.

    Args:
        blocks: each called as ``block(x: [B, N, C], grid) -> [B, N, C]``.
        downsample: a module from maps ``[B, C_in, *grid]`` to tokens ``[B, N, C]`` and their grid.
        norm: of the tokens that the stage returns.
        with_cp: recompute the downsampling and each block in the backward pass.
    """

    def __init__(
        self,
        blocks: Iterable[nn.Module] = (),
        *,
        downsample: nn.Module | None = None,
        norm: nn.Module | None = None,
        with_cp: bool = False,
    ) -> None:
        super().__init__()
        self.downsample, self.blocks, self.norm, self.with_cp = downsample, nn.ModuleList(blocks), norm, with_cp

    def forward(self, x: Tensor, grid: tuple[int, ...]) -> tuple[Tensor, tuple[int, ...]]:
        """Tokens ``[B, N, C_in]`` and their grid -> ``[B, N', C]`` and theirs."""
        if self.downsample is not None:
            x = to_map(x, grid)
            x, grid = self.recompute(self.downsample, x) if self.with_cp else self.downsample(x)
        for block in self.blocks:
            x = self.recompute(block, x, grid) if self.with_cp else block(x, grid)
        return (x if self.norm is None else norm_tokens(self.norm, x)), grid

    def recompute(self, layer: nn.Module, *args: Any) -> Any:
        """Call a layer of this stage, and in training call it again in the backward pass.

        Layers with batch norms in training mode are not recomputed: running statistics would be updated twice.
        """
        if not (self.training and torch.is_grad_enabled()) or any(
            isinstance(module, _BatchNorm) and module.training for module in layer.modules()
        ):
            return layer(*args)
        return checkpoint(layer, *args, use_reentrant=False)


class StageSize(NamedTuple):
    """Channels and stride of a stage's map, and the number of its blocks."""

    channels: int
    stride: int
    depth: int


@dataclass(frozen=True)
class TimmNames:
    """Names of a host's archs in timm, and their classifiers.

    Attributes:
        name: pattern of the names, such as ``'flatten_swin_{}'``.
        archs: archs by the text in the place of ``{}``.
        hidden: options of the classifier's :func:`mmlisa.models.mlp_head.hidden_layers`; None for a linear classifier.
        pool: ``'avg'`` or ``'token'``, the classifier's pooling.
        crop_pct: timm's, of its tests: the part of a resized image that the network sees.
        crop_mode: timm's, of its tests: ``'squash'`` resizes without keeping the ratio of the sides.
    """

    name: str
    archs: dict[str, str]
    hidden: dict[str, Any] | None = None
    pool: str = "avg"
    crop_pct: float = 0.875
    crop_mode: str = "center"


class Backbone(BaseModule):
    """A stem, and stages of a downsampling, blocks and norms.

    ``forward(image: [B, 3, H, W])`` returns one map ``[B, C_i, ceil(H / s_i), ceil(W / s_i)]`` per stage in ``out_indices``, for
    any H and W of at least 32, with strides s of 4, 8, 16, 32 unless the host says otherwise. Parameters that depend on the
    position keep the size of the pretraining grid and are interpolated to the grid at hand.

    A host fills ``arch_settings`` and ``default_arch``, and answers :meth:`build_stem`, :meth:`build_downsample`,
    :meth:`build_block` and :meth:`build_norm`; where its layout is another one, also :meth:`stage_sizes`, :meth:`stage_grid`,
    :meth:`drop_rates` and :meth:`finish`. They read ``arch``, ``attention``, ``image_size``, ``in_channels``,
    ``stage_channels`` and ``stage_strides``. Its names in timm and the published weights that fit it are the attributes ``timm``
    and ``published``.

    Args:
        arch: a name of ``arch_settings``, a dict of the same keys, or a dict with ``base='name'`` and the keys that differ; by
            default ``default_arch``.
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
        UserError: an unknown option, arch, key or operator; a number or an index out of range.
    """

    arch_settings: ClassVar[dict[str, dict[str, Any]]] = {}
    default_arch: ClassVar[str]
    # The key of arch that has a letter per stage for the token mixer, and the letters of this host; see MIXERS.
    mixers: ClassVar[tuple[str, str] | None] = None
    entries: ClassVar[int | None] = None  # of each tuple in arch; None for one per stage
    image_axes: ClassVar[tuple[int, ...]] = (2,)  # 3 for hosts that also take videos [B, 3, T, H, W]
    no_decay: ClassVar[tuple[str, ...]] = ()  # parts of names, see :meth:`no_weight_decay`
    timm: ClassVar[tuple[TimmNames, ...]] = ()
    # Stages that timm returns with features_only; None for all.
    feature_indices: ClassVar[tuple[int, ...] | None] = None
    first_conv: ClassVar[str] = "stem.proj"  # the convolution on the image
    classifier: ClassVar[dict[str, Any]] = {}  # options of a backbone under a classifier
    published: ClassVar[dict[Network, Rules]] = {}  # networks whose weights fit, and the names of their weights here
    num_extra_tokens: int = 0  # prefix (class) tokens of the blocks; mmpretrain's vis_cam reads it
    feature_channels: tuple[int, ...]
    feature_strides: tuple[int, ...]
    stage_channels: tuple[int, ...]
    stage_strides: tuple[int, ...]

    def __init__(
        self,
        arch: str | dict[str, Any] | None = None,
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
        **unknown: Any,
    ) -> None:
        super().__init__(init_cfg=init_cfg)
        check_options(type(self), unknown)
        self.arch = self.resolve_arch(arch)
        self.attention = self.resolve_attention(self.arch.get("attention"), attention)
        image_size = self.arch.get("image_size", 224) if image_size is None else image_size
        self.image_size = parse_image_size(image_size, self.image_axes)
        if not 0 <= drop_path_rate < 1:
            raise UserError(f"drop_path_rate={drop_path_rate!r}; it must be at least 0 and less than 1")
        self.drop_path_rate, self.in_channels = drop_path_rate, in_channels
        self.stage_channels, self.stage_strides, depths = zip(*self.stage_sizes(self.arch), strict=True)
        self.num_stages = num_stages = len(depths)
        out_indices = range(num_stages) if out_indices is None else out_indices
        out_indices = [out_indices] if isinstance(out_indices, int) else out_indices
        if not out_indices or not all(-num_stages <= i < num_stages for i in out_indices):
            raise UserError(f"out_indices={out_indices!r}; a network of {num_stages} stages has 0 to {num_stages - 1}")
        if not -1 <= frozen_stages <= num_stages:
            raise UserError(f"frozen_stages={frozen_stages!r}; it must lie between -1 (none) and {num_stages} (all)")
        self.out_indices = tuple(sorted({i % num_stages for i in out_indices}))
        self.feature_channels = tuple(self.stage_channels[i] for i in self.out_indices)
        self.feature_strides = tuple(self.stage_strides[i] for i in self.out_indices)
        self.frozen_stages, self.norm_eval, self.with_cp = frozen_stages, norm_eval, with_cp

        self.stem = self.build_stem()
        self.stages = nn.ModuleList()
        for stage, rates in enumerate(self.drop_rates(depths)):
            downsample, grid = self.build_downsample(stage), self.stage_grid(stage)
            blocks = [self.build_block(stage, index, rate, grid) for index, rate in enumerate(rates)]
            self.stages.append(Stage(blocks, downsample=downsample, norm=self.build_stage_norm(stage), with_cp=with_cp))
        for stage in self.out_indices:
            if (norm := self.build_norm(stage)) is not None:
                self.add_module(f"norm{stage}", norm)
        self.finish()
        self.train()  # DistributedDataParallel registers the parameters that are not frozen when it wraps the model

    @classmethod
    def resolve_arch(cls, arch: str | dict[str, Any] | None) -> dict[str, Any]:
        """Return the checked settings of an arch."""
        resolved = look_up_arch(cls.default_arch if arch is None else arch, cls.arch_settings, cls.__name__)
        cls.check_arch(resolved)
        return resolved

    @classmethod
    def check_arch(cls, arch: dict[str, Any]) -> None:
        """Raise UserError for invalid settings of an arch, and write its mixers in the letters of :data:`MIXERS`."""
        check_stages(arch, cls.arch_settings, cls.entries)
        if cls.mixers is not None:
            key, letters = cls.mixers
            arch[key] = parse_mixers(f"arch: {key}", arch[key], len(arch["depths"]), letters)

    @classmethod
    def resolve_attention(cls, default: dict[str, Any] | None, attention: dict[str, Any] | None) -> dict[str, Any]:
        """Merge ``attention`` over the arch's operator config, unless it sets another ``type``."""
        if attention is None:
            return default or {}
        if not isinstance(attention, dict):
            raise UserError(f"attention={attention!r}; it must be a dict such as dict(type='SoftmaxAttention')")
        if default is None:
            raise UserError(f"attention={attention!r}; {cls.__name__} has no attention to replace")
        operator = _name(default.get("type"))  # an arch without one is refused when the operator is built
        is_same = _name(attention.get("type", operator)) in (operator, f"mmlisa.{operator}")
        return {**default, **attention} if is_same else dict(attention)

    @classmethod
    def stage_sizes(cls, arch: dict[str, Any]) -> list[StageSize]:
        """Sizes of the stages; by default of strides 4, 8, 16, …, with ``channels`` and ``depths`` of the arch."""
        sizes = zip(arch["channels"], arch["depths"], strict=True)
        return [StageSize(channels, 4 * 2**stage, depth) for stage, (channels, depth) in enumerate(sizes)]

    def stage_grid(self, stage: int) -> tuple[int, ...]:
        """Token grid of a stage at the pretraining resolution; by default its sides are divided by the stride and rounded up."""
        return tuple(-(-size // self.stage_strides[stage]) for size in self.image_size)

    def drop_rates(self, depths: Sequence[int]) -> list[list[float]]:
        """Rates of stochastic depth of the blocks, a list per stage; by default they grow linearly over all blocks."""
        rates = iter(torch.linspace(0, self.drop_path_rate, sum(depths), device="cpu").tolist())
        return [[next(rates) for _ in range(depth)] for depth in depths]

    def build_stem(self) -> nn.Module:
        """Build what leads into the first stage: image ``[B, 3, H, W]`` -> tokens ``[B, N, C]`` and their grid."""
        raise NotImplementedError

    def build_downsample(self, stage: int) -> nn.Module | None:
        """Build what leads into ``stage``, from a map to tokens and their grid; None for nothing, as into stage 0."""
        return None

    def build_block(self, stage: int, index: int, drop_path: float, grid: tuple[int, ...]) -> nn.Module:
        """Build a block, called as ``block(x: [B, N, C], grid) -> [B, N, C]``.

        Args:
            stage, index: its stage, and its place there; both from 0.
            drop_path: its rate of stochastic depth.
            grid: the stage's token grid at the pretraining resolution.
        """
        raise NotImplementedError

    def build_stage_norm(self, stage: int) -> nn.Module | None:
        """Build the norm at the end of ``stage``, whose result is its map and the next stage's input; None for none."""
        return None

    def build_norm(self, stage: int) -> nn.Module | None:
        """Build the norm of the returned map of ``stage``; None for none."""
        return None

    def finish(self) -> None:
        """Initialise the layers, after all of them are built; by default the linear ones, see :func:`init_linear`."""
        init_linear(self)

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        """``[B, 3, H, W]`` -> one ``[B, C_i, H_i, W_i]`` per output stage; UserError for a height or width below 32."""
        x, grid = self.embed(image)
        maps = []
        for i in range(self.out_indices[-1] + 1):
            x, grid = self.stages[i](x, grid)
            if i in self.out_indices:
                maps.append(self.to_output(self.norm_output(x, i), grid))
        return tuple(maps)

    def embed(self, image: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        """Run the stem: ``[B, 3, H, W]`` -> tokens ``[B, N, C]`` and their grid."""
        # Each size is compared alone: a comparison of the two would become a condition of an exported graph.
        height, width = image.shape[-2:]
        if height < MIN_IMAGE_SIZE or width < MIN_IMAGE_SIZE:
            raise UserError(f"image is {height}x{width} (H x W); it needs at least {MIN_IMAGE_SIZE} in both")
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
                f"stages.{i}.{name}.{j}."
                for name, layers in (("downsample", stage.downsample), ("blocks", stage.blocks))
                if isinstance(layers, nn.ModuleList | ConvStack)
                for j in range(len(layers))
            ]
            for i, stage in enumerate(self.stages)
        ]

    def get_layer_depth(self, param_name: str, prefix: str = "") -> tuple[int, int]:
        """Layer of a parameter and the number of layers, for learning rates that decay from layer to layer.

        The stem is layer 0, each block is a layer of its own, and the norms of the returned maps belong to the last layer, as do
        parameters outside of the backbone, whose names do not begin with ``prefix``. A downsampling belongs to the first block of
        its stage. This is the interface of mmpretrain's backbones.
        """
        depth, depths = 1, {"stem.": 0}
        for i, layers in enumerate(self.layer_names()[: self.out_indices[-1] + 1]):
            depths[f"stages.{i}.downsample."] = depth
            depths |= {layer: depth + j for j, layer in enumerate(layers)}
            depth += len(layers)
            depths[f"stages.{i}."] = depth - 1  # the norm at the end of the stage
        name = param_name.removeprefix(prefix)
        layers = [layer for layer in depths if name.startswith(layer)] if param_name.startswith(prefix) else []
        return (depths[max(layers, key=len)] if layers else depth), depth + 1

    def no_weight_decay(self) -> set[str]:
        """Return the names of parameters that do not decay in the ImageNet recipe, beside those of one axis and biases."""
        return {name for name, _ in self.named_parameters() if any(text in name for text in self.no_decay)}

    def train(self, mode: bool = True) -> "Backbone":
        super().train(mode)
        frozen = [module for stage in range(self.frozen_stages + 1) for module in self.stage_modules(stage)]
        unused = self.stages[self.out_indices[-1] + 1 :]  # DistributedDataParallel fails on unused parameters
        keep_frozen(self, (*frozen, *unused), self.norm_eval)
        return self

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Set ``with_cp``, as timm's networks do."""
        self.with_cp = enable
        for stage in self.stages:
            stage.with_cp = enable

    def init_weights(self) -> None:
        """Initialise as MMEngine does, but read the files that ``init_cfg`` names safely; see :func:`loading_from_init_cfg`."""
        with loading_from_init_cfg(self):
            super().init_weights()


class FLattenBackbone(Backbone):
    """Base of FLatten's hosts with an attention of their own.

    Args:
        attn_type: one letter per stage, ``A`` (or the paper's ``L``) for the operator of ``attention``, ``S`` for the host's own;
            the arch's by default.
    """

    mixers = ("attn_type", "AS")
    classifier: ClassVar[dict[str, Any]] = dict(out_indices=(3,))

    def __init__(
        self, arch: str | dict[str, Any] | None = None, *, attn_type: str | None = None, **options: Any
    ) -> None:
        if attn_type is not None:
            arch = {**(arch if isinstance(arch, dict) else {"base": arch or self.default_arch}), "attn_type": attn_type}
        super().__init__(arch, **options)
