"""The base of all backbones: a stem, stages of blocks, and one map per returned stage."""

from collections.abc import Iterable, Sequence
from copy import deepcopy
from functools import partial
from math import prod, sqrt
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from mmengine.model import BaseModule
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from mmlisa.errors import UserError
from mmlisa.models.attention.base import build_attention, check_options, resolved_options
from mmlisa.models.init_cfg import SafeInit
from mmlisa.models.layers.blocks import Block, LayerNorm, Stage
from mmlisa.models.layers.tokens import ConvStack, PatchEmbed, norm_tokens, to_map
from mmlisa.models.published import Network, Rules, TimmNames

MIN_IMAGE_SIZE = 32
# By the axes of the grid. In this memory format, conversions between maps and tokens are views.
_CHANNELS_LAST = {2: torch.channels_last, 3: torch.channels_last_3d}
# Token mixers by the letter that chooses them for a stage.
MIXERS = {"A": "or L, the operator of attention", "C": "separable convolution", "S": "the backbone's own attention"}


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


class StageSize(NamedTuple):
    """Channels and stride of a stage's map, and the number of its blocks."""

    channels: int
    stride: int
    depth: int


class Backbone(SafeInit, BaseModule):
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
    """

    arch_settings: ClassVar[dict[str, dict[str, Any]]] = {}
    default_arch: ClassVar[str]
    # The key of arch that has a letter per stage for the token mixer, and the letters of this host; see MIXERS.
    mixers: ClassVar[tuple[str, str] | None] = None
    entries: ClassVar[int | None] = None  # of each tuple in arch; None for one per stage
    image_axes: ClassVar[tuple[int, ...]] = (2,)  # 3 for hosts that also take videos [B, 3, T, H, W]
    no_decay: ClassVar[tuple[str, ...]] = ()  # parts of names, see :meth:`no_weight_decay`
    # How convolutions start: as PyTorch's, by their 'fan-out', or 'truncated' like linear layers; see :meth:`finish`.
    convolutions: ClassVar[Literal["PyTorch", "fan-out", "truncated"]] = "PyTorch"
    timm: ClassVar[tuple[TimmNames, ...]] = ()
    # Stages that timm returns with features_only; None for all.
    feature_indices: ClassVar[tuple[int, ...] | None] = None
    first_conv: ClassVar[str] = "stem.proj"  # the convolution on the image
    classifier: ClassVar[dict[str, Any]] = {}  # options of a backbone under a classifier
    published: ClassVar[dict[Network, Rules]] = {}  # networks whose weights fit, and the names of their weights here
    at_resolution: ClassVar[tuple[str, ...]] = (
        "image_size",
    )  # keys of arch that a start at another resolution changes
    num_extra_tokens: ClassVar[int] = 0  # prefix (class) tokens of the blocks; mmpretrain's vis_cam reads it
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
        self.image_size = tuple(image_size) if isinstance(image_size, Sequence) else (image_size, image_size)
        if len(self.image_size) not in self.image_axes:
            forms = " or ".join("(H, W)" if axes == 2 else "(T, H, W)" for axes in self.image_axes)
            raise UserError(f"image_size={image_size!r}; it must be a number of pixels, or {forms}")
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
        """Return the checked settings of an arch; an unknown name or key is a UserError."""
        arch = cls.default_arch if arch is None else arch
        delta = {"base": arch} if isinstance(arch, str) else dict(arch)
        base = delta.pop("base", None)
        if base is not None and base not in cls.arch_settings:
            raise UserError(f"arch {base!r} is not one of {cls.__name__}'s: {sorted(cls.arch_settings)}")
        keys = {key for settings in cls.arch_settings.values() for key in settings}
        if unknown := set(delta) - keys:
            raise UserError(f"arch has unknown keys {sorted(unknown)}; {cls.__name__} knows {sorted(keys)}")
        resolved = deepcopy({**cls.arch_settings.get(base, {}), **delta})
        cls.check_arch(resolved)
        return resolved

    @classmethod
    def check_arch(cls, arch: dict[str, Any]) -> None:
        """Raise UserError for invalid settings of an arch, and write its mixers in the letters of :data:`MIXERS`.

        The settings that are tuples in ``arch_settings`` need the same number of entries: further ones would be ignored.
        """
        settings, count = cls.arch_settings.values(), cls.entries
        per_stage = {key for values in settings for key, value in values.items() if isinstance(value, tuple)}
        lengths = {key: len(value) for key, value in arch.items() if key in per_stage}
        if len({count, *lengths.values()} - {None}) > 1:
            counts = ", ".join(f"{key} has {length}" for key, length in lengths.items())
            raise UserError(f"arch: {counts} entries; each must have {count or 'one per stage'}")
        single = {key for values in settings for key, value in values.items() if isinstance(value, int)} - per_stage
        for key in single & set(arch):
            if isinstance(arch[key], list | tuple):
                raise UserError(f"arch: {key}={arch[key]!r}; it must be a number")
        if cls.mixers is not None:
            key, letters = cls.mixers
            given, stages = arch[key], len(arch["depths"])
            arch[key] = given.replace("L", "A")
            if len(given) != stages or set(arch[key]) - set(letters):
                meanings = " or ".join(f"{letter} ({MIXERS[letter]})" for letter in letters)
                raise UserError(f"arch: {key}={given!r}; it must be {stages} letters, one per stage: {meanings}")

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

        By default, it is a :class:`Block` with the operator; ``num_heads`` of the arch is a number, or one for each last stage.
        """
        arch, channels, heads = self.arch, self.stage_channels[stage], self.arch["num_heads"]
        heads = heads if isinstance(heads, int) else heads[stage - self.num_stages]
        ratio, conv = arch["mlp_ratio"], arch.get("mlp_conv")
        attention = build_attention(self.attention, channels, heads, grid)
        return Block(channels, attention, mlp_ratio=ratio, mlp_conv=conv, drop_path=drop_path)

    def build_stage_norm(self, stage: int) -> nn.Module | None:
        """Build the norm at the end of ``stage``, whose result is its map and the next stage's input; None for none."""
        return None

    def build_norm(self, stage: int) -> nn.Module | None:
        """Build the norm of the returned map of ``stage``; None for none."""
        return None

    def finish(self) -> None:
        """Initialise the layers, after all of them are built.

        Linear layers: truncated normal with standard deviation 0.02, biases 0; ``'truncated'`` convolutions likewise. By the
        ``'fan-out'`` of a group: normal with variance 2 / fan-out, biases 0 (He et al., 2015; PVTv2's code).
        """
        is_truncated, is_by_fan_out = self.convolutions == "truncated", self.convolutions == "fan-out"
        for layer in self.modules():
            if isinstance(layer, nn.Linear) or (is_truncated and isinstance(layer, nn.Conv2d)):
                nn.init.trunc_normal_(layer.weight, std=0.02)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)
        for layer in self.modules() if is_by_fan_out else ():
            if isinstance(layer, nn.Conv2d | nn.Conv3d):
                # It counts what one input feeds: a depthwise output depends on one channel, not on all of them.
                fan_out = prod(layer.kernel_size) * layer.out_channels // layer.groups
                nn.init.normal_(layer.weight, std=sqrt(2 / fan_out))
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)
        # With biases of 0 in the stem, the padding of a batch would become tokens of exactly 0. Convolutions, LiSA and MLPs map 0
        # to 0, the LayerNorm of such a token multiplies its gradient by 1000, and a dozen blocks overflow fp32.
        for layer in self.stem.modules() if is_truncated or is_by_fan_out else ():
            if isinstance(layer, nn.Conv2d | nn.Conv3d) and layer.bias is not None:
                nn.init.trunc_normal_(layer.bias, std=0.02)

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

    def settings(self) -> dict[str, Any]:
        """Return what decides the function of the weights beside their shapes: the arch with its operator and all defaults.

        ``MODELS.build`` of mmlisa's registry takes it. Checkpoints of ``mmlisa train`` hold it as ``meta["backbone"]``.
        """
        operator = {"attention": resolved_options(self.attention)} if "type" in self.attention else {}
        return {"type": type(self).__name__, "arch": {**self.arch, **operator}}


class DenseBackbone(Backbone):
    """Base of hosts whose maps have norms for dense prediction only: their classifiers have a norm of their own.

    Args:
        output_norm: a LayerNorm on each returned map, as the papers' dense prediction has; False for a classifier's backbone.
    """

    eps: ClassVar[float] = 1e-5  # of these norms
    classifier: ClassVar[dict[str, Any]] = dict(out_indices=(3,), output_norm=False)

    def __init__(self, arch: str | dict[str, Any] | None = None, *, output_norm: bool = True, **options: Any) -> None:
        self.output_norm = output_norm
        super().__init__(arch, **options)

    def build_norm(self, stage: int) -> nn.Module | None:
        return nn.LayerNorm(self.stage_channels[stage], eps=self.eps) if self.output_norm else None


class FLattenBackbone(Backbone):
    """Base of FLatten's hosts with an attention of their own.

    Args:
        attn_type: one letter per stage, ``A`` (or the paper's ``L``) for the operator of ``attention``, ``S`` for the host's own;
            the arch's by default.
    """

    mixers = ("attn_type", "AS")
    classifier: ClassVar[dict[str, Any]] = dict(out_indices=(3,))
    eps: ClassVar[float] = 1e-5  # of the blocks' norms
    mlp_conv: ClassVar[int | None] = None

    def __init__(
        self, arch: str | dict[str, Any] | None = None, *, attn_type: str | None = None, **options: Any
    ) -> None:
        if attn_type is not None:
            arch = {**(arch if isinstance(arch, dict) else {"base": arch or self.default_arch}), "attn_type": attn_type}
        super().__init__(arch, **options)

    def build_own_attention(self, stage: int, index: int, grid: tuple[int, ...]) -> nn.Module:
        """Build the host's own attention, as :meth:`build_block` a block."""
        raise NotImplementedError

    def build_downsample(self, stage: int) -> nn.Module | None:
        before, channels = self.stage_channels[stage - 1], self.stage_channels[stage]
        return PatchEmbed(before, channels, 3, 2, 1, norm=nn.LayerNorm(channels)) if stage else None

    def build_block(self, stage: int, index: int, drop_path: float, grid: tuple[int, ...]) -> nn.Module:
        arch, channels = self.arch, self.stage_channels[stage]
        if arch["attn_type"][stage] == "S":
            attention = self.build_own_attention(stage, index, grid)
        else:  # windows are shifted in every second block
            heads, is_odd = arch["num_heads"][stage], index % 2 == 1
            attention = build_attention(self.attention, channels, heads, grid, may_shift=is_odd)
        ratio, norm = arch["mlp_ratios"][stage], partial(LayerNorm, eps=self.eps)
        return Block(channels, attention, mlp_ratio=ratio, mlp_conv=self.mlp_conv, drop_path=drop_path, norm=norm)
