"""Every named network as a timm model: importing this file enters them into timm's registry.

``timm.create_model('hylisanet_s')`` is a classifier with timm's interface, ``features_only=True`` the pyramid of its maps.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from fnmatch import filter as matching
from functools import partial
from os import PathLike
from typing import Any

from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from timm.models import (
    FeatureInfo,
    build_model_with_cfg,
    generate_default_cfgs,
    register_model,
    resolve_pretrained_cfg,
)
from timm.models import create_model as create_timm_model
from timm.models._builder import pretrained_cfg_for_features
from timm.models._features import feature_take_indices
from torch import Tensor, nn

from .feature_maps import all_stages
from .layers import to_tokens
from .mlp_head import hidden_layers
from .timm_interface import TimmInterface


@dataclass(frozen=True)
class Network:
    """A row of :data:`NETWORKS`.

    Attributes:
        backbone, arch: registered name and named arch.
        options: of the backbone under a classifier.
        hidden: options of :func:`hidden_layers`; None for a linear classifier.
        pool: a name of :data:`POOLS`.
        size: height and width of the images it is trained on.
        crop_mode: timm's, of its tests: ``'squash'`` resizes without keeping the ratio of the sides.
        stride: of the last map.
        first_conv: the convolution on the image, in the backbone.
        no_decay: parts of the names of parameters that do not decay in the ImageNet recipe.
    """

    backbone: str
    arch: str
    options: dict[str, Any] = field(default_factory=dict)
    hidden: dict[str, Any] | None = None
    pool: str = "avg"
    size: int = 224
    crop_mode: str = "center"
    stride: int = 32
    first_conv: str = "stem.proj"
    no_decay: tuple[str, ...] = ()


_JOURNAL = dict(hidden={})
_METAFORMER = dict(options=dict(output_norm=False), hidden=dict(pre_norm=True, activation="SquaredReLU"))
_LAST_NORM = dict(options=dict(output_norm=False), first_conv="stem.shrink.linear")
_SWIN = dict(no_decay=("relative_position_bias_table",))
_SQUASH = dict(crop_mode="squash")
_AT_384 = dict(size=384, **_SQUASH)
_PLAIN = dict(stride=16)
_CLASS_TOKEN = dict(pool="token", **_PLAIN)
_POSITION = dict(no_decay=("stem.position",))
_S, _SB = {"s": "small"}, {"s": "small", "b": "base"}
_TSB = {"t": "tiny", **_SB}
_SML = {"s": "small", "m": "medium", "l": "large"}


def _family(backbone: str, archs: dict[str, str] | Iterable[str], name: str, **row: Any) -> dict[str, Network]:
    """One row per arch; ``archs`` maps the suffix of the name to the arch, or lists archs that are their own suffixes."""
    archs = archs if isinstance(archs, dict) else {arch: arch for arch in archs}
    return {name.format(suffix): Network(backbone, arch, **row) for suffix, arch in archs.items()}


# The networks by their timm names. The heads are those of the ImageNet configs, whose checkpoints they load.
NETWORKS: dict[str, Network] = {
    **_family("LiSANet", _SB, "lisanet_{}", **_JOURNAL),
    **_family("LiSANet", {"s": "hybrid-small", "b": "hybrid-base"}, "hylisanet_{}", **_JOURNAL),
    **_family("LiSANet", {"i": "isotropic"}, "lisanet_{}", no_decay=("position_embedding",), **_PLAIN),
    **_family("LiSANet", {name: f"v1-{name}" for name in ("tiny", "small", "base")}, "lisanet_v1_{}"),
    **_family("FLattenSwin", _TSB, "flatten_swin_{}", **_SWIN, **_SQUASH),
    **_family("FLattenSwin", {"b": "base-384"}, "flatten_swin_{}_384", **_SWIN, **_AT_384),
    **_family("FLattenPVT", {"t": "tiny", **_SML}, "flatten_pvt_{}", **_SQUASH),
    **_family("FLattenSwin", {suffix: f"pola-{arch}" for suffix, arch in _TSB.items()}, "pola_swin_{}", **_SWIN),
    **_family("FLattenSwin", {"b": "pola-base-384"}, "pola_swin_{}_384", **_SWIN, **_AT_384),
    **_family("FLattenPVT", {"t": "pola-tiny", **{s: f"pola-{arch}" for s, arch in _SML.items()}}, "pola_pvt_{}"),
    **_family("MILA", _TSB, "mila_{}", **_LAST_NORM),
    **_family("HViT3", _TSB, "h_vit3_{}", **_LAST_NORM),
    **_family("ViT3", _TSB, "vit3_{}", **_PLAIN),
    **_family("FLattenPVTv2", ("b0", "b1", "b2", "b3", "b4"), "flatten_pvtv2_{}", **_SQUASH),
    **_family("FLattenCSwin", _TSB, "flatten_cswin_{}", **_SQUASH),
    **_family("FLattenCSwin", {"b": "base-384"}, "flatten_cswin_{}_384", **_AT_384),
    **_family(
        "FLattenDeiT",
        {"t": "tiny"},
        "flatten_deit_{}",
        no_decay=("stem.position", "cls_token"),
        **_CLASS_TOKEN,
        **_SQUASH,
    ),
    **_family("iViT", _TSB, "ivit_{}", first_conv="stem.conv", **_METAFORMER),
    **_family("InteractiveViT", {"t16": "tiny-16", "s16": "small-16"}, "vit_{}_interactive", **_POSITION, **_PLAIN),
    **_family("InteractiveViT", {"t8": "tiny-8", "s8": "small-8"}, "vit_{}_interactive", stride=8, **_POSITION),
    **_family(
        "LCNet",
        {f"x{scale}".replace(".", "_"): f"x{scale}" for scale in (0.25, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5)},
        "lcnet_{}",
        first_conv="stem.0",
    ),
    **_family("ESNet", {"x0_75": "x0.75", "x1_0": "x1.0", "x1_25": "x1.25"}, "esnet_{}", first_conv="stem.0.0"),
    **_family("CastlingLCNetViT", _SML, "castling_lcnet_{}", first_conv="stem.0"),
    **_family("CastlingESNetViT", _SML, "castling_esnet_{}", first_conv="stem.0.0"),
    **_family(
        "CastlingLeViT",
        ("128", "192", "256", "384"),
        "castling_levit_{}",
        stride=64,
        first_conv="stem.0.linear",
    ),
    **_family("CastlingDeiT", {"t": "tiny", "b": "base"}, "castling_deit_{}", **_CLASS_TOKEN),
    **_family("CastlingMViTv2", _TSB, "castling_mvitv2_{}"),
    **_family("CastlingViT", {"b": "base"}, "castling_vit_{}", **_CLASS_TOKEN),
}

_SWIN_HOST = "swin_{}_patch4_window7_224.ms_in1k"
_DEIT_HOST = "deit_{}_patch16_224.fb_in1k"
# timm's weights that a network can start from.
HOSTS: dict[str, str] = {
    **{f"{ours}_swin_{key}": _SWIN_HOST.format(arch) for ours in ("flatten", "pola") for key, arch in _TSB.items()},
    **{f"{ours}_swin_b_384": "swin_base_patch4_window12_384.ms_in1k" for ours in ("flatten", "pola")},
    **{f"flatten_pvtv2_b{i}": f"pvt_v2_b{i}.in1k" for i in range(5)},
    **dict.fromkeys(("flatten_deit_t", "castling_deit_t", "vit_t16_interactive"), _DEIT_HOST.format("tiny")),
    "vit_s16_interactive": _DEIT_HOST.format("small"),
    "castling_deit_b": _DEIT_HOST.format("base"),
    "castling_vit_b": "vit_base_patch16_224.mae",
    "ivit_t": "caformer_s18.sail_in1k",
    "ivit_s": "caformer_s36.sail_in1k",
    "ivit_b": "caformer_m36.sail_in1k",
    **{f"castling_levit_{width}": f"levit_{width}.fb_dist_in1k" for width in ("128", "192", "256", "384")},
    **{f"castling_mvitv2_{key}": f"mvitv2_{arch}.fb_in1k" for key, arch in _TSB.items()},
    "lcnet_x0_5": "lcnet_050.ra2_in1k",
    "lcnet_x0_75": "lcnet_075.ra2_in1k",
    "lcnet_x1_0": "lcnet_100.ra2_in1k",
    "castling_lcnet_s": "lcnet_075.ra2_in1k",
    "lisanet_s": "pvt_v2_b3.in1k",
    "hylisanet_s": "caformer_s36.sail_in1k",
    "hylisanet_b": "caformer_m36.sail_in1k",
}

# Of tokens ``[B, prefix + N, C]``, by names of timm.
POOLS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "avg": lambda x, prefix: x[:, prefix:].mean(1),
    "max": lambda x, prefix: x[:, prefix:].amax(1),
    "token": lambda x, prefix: x[:, 0],
}
PLAIN_LEVELS = (-3, -2, -1)  # what timm's ViTs return as features


class ClassifierHead(nn.Module):
    """Pooling, the hidden layer where a network has one, dropout, and the classifier.

    The names are those of mmpretrain's ``LinearClsHead`` and of ``mmlisa.MlpClsHead``.
    """

    def __init__(self, channels: int, hidden: dict[str, Any] | None, drop_rate: float, prefix: int) -> None:
        super().__init__()
        self.prefix = prefix
        if hidden is None:
            layers, self.classifier, self.width = {"dropout": nn.Dropout(drop_rate)}, "fc", channels
        else:
            layers, self.classifier = hidden_layers(channels, dropout=drop_rate, **hidden), "fc2"
            self.width = layers["fc1"].out_features
            nn.init.trunc_normal_(layers["fc1"].weight, std=0.02)
            nn.init.zeros_(layers["fc1"].bias)
        for name, layer in layers.items():
            self.add_module(name, layer)
        self.before = tuple(layers)

    def reset(self, num_classes: int, global_pool: str) -> None:
        """A new classifier, none where ``num_classes`` is 0, behind a pooling of :data:`POOLS`."""
        fc = nn.Linear(self.width, num_classes) if num_classes else nn.Identity()
        if num_classes:
            nn.init.trunc_normal_(fc.weight, std=0.02)
            nn.init.zeros_(fc.bias)
        self.add_module(self.classifier, fc)
        self.global_pool = global_pool

    def forward(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """A map ``[B, C, H, W]``, or tokens ``[B, prefix + N, C]`` -> ``[B, num_classes]``; without pooling ``x``."""
        if not self.global_pool:
            return x
        x = POOLS[self.global_pool](x if self.prefix else to_tokens(x), self.prefix)
        for name in self.before:
            x = getattr(self, name)(x)
        return x if pre_logits else getattr(self, self.classifier)(x)


class Classifier(TimmInterface):
    """A network of :data:`NETWORKS` with the interface of timm's classifiers.

    Its parameters have the names of an mmpretrain ``ImageClassifier``, ``backbone.*`` and ``head.*``.

    Args:
        name: a key of :data:`NETWORKS`.
        num_classes: see :meth:`reset_classifier`.
        global_pool: see :meth:`reset_classifier`; None for the network's own.
        drop_rate: dropout before the classifier.
        options: see :class:`TimmInterface`.
    """

    def __init__(
        self,
        name: str,
        *,
        num_classes: int = 1000,
        global_pool: str | None = None,
        drop_rate: float = 0.0,
        **options: Any,
    ) -> None:
        network = NETWORKS[name]
        if "out_indices" in options:
            raise TypeError(f"out_indices={options['out_indices']!r}: a classifier has none; add features_only=True")
        options = {"out_indices": (-1,), **network.options, **options}
        super().__init__(network.backbone, network.arch, no_decay=network.no_decay, **options)
        self.feature_info = self.level_info
        self.pools = tuple(pool for pool in (*POOLS, "") if pool != "token" or self.backbone.num_extra_tokens)
        self._build_head(network.hidden, drop_rate)
        self.reset_classifier(num_classes, network.pool if global_pool is None else global_pool)

    def _build_head(self, hidden: dict[str, Any] | None, drop_rate: float) -> None:
        self.num_features = self.feature_info[len(self.levels()) - 1]["num_chs"]
        self.head = ClassifierHead(self.num_features, hidden, drop_rate, self.backbone.num_extra_tokens)
        self.head_hidden_size = self.head.width

    def forward_features(self, image: Tensor) -> Tensor:
        """``[B, in_chans, H, W]`` -> the last map ``[B, C, H', W']``; with a class token all tokens ``[B, 1 + N, C]``."""
        levels = self.levels()
        x, grid = self.backbone.embed(image)
        for level in levels:
            x, grid = level(x, grid)
        return self.to_features(x, grid, len(levels) - 1)

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """What :meth:`forward_features` returns -> ``[B, num_classes]``, or the classifier's input ``[B, head_hidden_size]``."""
        return self.head(x, pre_logits)

    def forward(self, image: Tensor) -> Tensor:
        """``[B, in_chans, H, W]`` -> ``[B, num_classes]``; without classes ``[B, head_hidden_size]``."""
        return self.forward_head(self.forward_features(image))

    def get_classifier(self) -> nn.Module:
        """Return the last layer; an identity if there are no classes."""
        return getattr(self.head, self.head.classifier)

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """A new last layer.

        Args:
            num_classes: 0 for none: the network then returns its input ``[B, head_hidden_size]``.
            global_pool: ``'avg'``, ``'max'``, ``'token'`` for networks with a class token, or, without classes, ``''`` for the
                output of :meth:`forward_features`; None keeps the pooling.

        Raises:
            ValueError: another pooling, a negative number of classes, or classes on maps.
        """
        pool = self.head.global_pool if global_pool is None else global_pool
        if pool not in self.pools:
            raise ValueError(f"global_pool={pool!r}; it must be one of {self.pools}")
        if num_classes < 0 or (num_classes and not pool):
            raise ValueError(
                f"num_classes={num_classes} with global_pool={pool!r}; it must be 0 without pooling, else >= 0"
            )
        self.num_classes = num_classes
        self.head.reset(num_classes, pool)
        ours = next(self.backbone.parameters())
        self.head.to(ours.device, ours.dtype)

    def prune_intermediate_layers(
        self, indices: int | Sequence[int] = 1, prune_norm: bool = False, prune_head: bool = True
    ) -> list[int]:
        """Remove what the levels of ``indices`` do not need.

        Args:
            indices: see :meth:`forward_intermediates`.
            prune_norm: remove the norms of the backbone's maps.
            prune_head: remove the head. It also goes if its level is removed.

        Returns:
            The levels, counted from 0.
        """
        count, backbone = len(self.levels()), self.backbone
        taken, last = feature_take_indices(count, indices)
        if backbone.num_stages == 1:
            backbone.stages[0].blocks = backbone.stages[0].blocks[: last + 1]
        else:
            backbone.stages = backbone.stages[: last + 1]
            backbone.out_indices = (last,)
            backbone.feature_channels = (self.feature_info[last]["num_chs"],)
            backbone.feature_strides = (self.feature_info[last]["reduction"],)
            backbone.frozen_stages = min(backbone.frozen_stages, last + 1)
        removed = range(last + 1, count) if backbone.num_stages > 1 else ()
        norms = {"norm", *(f"norm{i}" for i in range(count))} if prune_norm else {f"norm{i}" for i in removed}
        for norm in norms & set(backbone._modules):
            setattr(backbone, norm, nn.Identity())
        if prune_head or last < count - 1:
            self._build_head(None, 0.0)
            self.head.global_pool = ""
            self.reset_classifier(0, "")
        return taken


class Features(TimmInterface):
    """The normed maps of a network of :data:`NETWORKS`, with the interface of timm's ``features_only`` models.

    ``feature_info`` knows the channels and the reduction of every level; without an index, of those in ``out_indices``.

    Args:
        name: a key of :data:`NETWORKS`.
        out_indices: levels, or how many of the last ones; all of a pyramid by default, the last three of a plain network.
        options: see :class:`TimmInterface`.
    """

    def __init__(self, name: str, *, out_indices: int | Sequence[int] | None = None, **options: Any) -> None:
        network = NETWORKS[name]
        stages = all_stages(network.backbone, network.arch)
        if out_indices is None and stages[0].stride == stages[-1].stride:
            out_indices = PLAIN_LEVELS
        if isinstance(out_indices, int):
            out_indices = tuple(range(-out_indices, 0))
        is_single = len(stages) == 1
        super().__init__(
            network.backbone,
            network.arch,
            no_decay=network.no_decay,
            out_indices=None if is_single else out_indices,
            **options,
        )
        levels, _ = feature_take_indices(len(self.levels()), out_indices if is_single else self.backbone.out_indices)
        self.out_indices = tuple(sorted(set(levels)))
        self.feature_info = FeatureInfo(self.level_info, self.out_indices)
        # DistributedDataParallel refuses parameters that no output needs.
        if is_single:
            self.backbone.stages[0].blocks = self.backbone.stages[0].blocks[: self.out_indices[-1] + 1]
        else:
            self.backbone.stages = self.backbone.stages[: self.out_indices[-1] + 1]
            self.backbone.frozen_stages = min(self.backbone.frozen_stages, len(self.backbone.stages))

    def forward(self, image: Tensor) -> list[Tensor]:
        """``[B, in_chans, H, W]`` -> one ``[B, C_i, H / s_i, W / s_i]`` per level in ``out_indices``, from fine to coarse."""
        return self.forward_intermediates(image, self.out_indices, norm=True, stop_early=True, intermediates_only=True)


def create_model(
    name: str, *, pretrained: str | PathLike | None = None, features_only: bool = False, **options: Any
) -> Classifier | Features:
    """A network by its name, as a classifier or as the pyramid of its maps.

    Args:
        name: a name of :func:`list_models`.
        pretrained: a checkpoint file: of this package's training in mmpretrain, mmdet or mmseg, or of
            ``tools/convert_checkpoint.py``; or any source of ``mmlisa.PublishedWeights``: a file of a host's weights, an
            address, ``'timm:NAME'``. A host's classifier is taken over where its shape is the same.
        features_only: the maps of the levels in ``out_indices`` instead of classes.
        **options: ``in_chans``, ``img_size`` (pretraining resolution); of a classifier ``num_classes``, ``global_pool``,
            ``drop_rate``; of features ``out_indices``; all others are the backbone's: ``attention``, ``drop_path_rate``, …

    Raises:
        FileNotFoundError: no such checkpoint.
        ConnectionError: weights that cannot be downloaded.
        ValueError: an unknown name, or a checkpoint of another network.
    """
    if name not in NETWORKS:
        raise ValueError(f"model {name!r} is unknown; the closest are {get_close_matches(name, NETWORKS, cutoff=0.3)}")
    overlay = dict(file=str(pretrained)) if pretrained and pretrained is not True else None
    return create_timm_model(
        name, bool(pretrained), pretrained_cfg_overlay=overlay, features_only=features_only, **options
    )


def list_models(pattern: str = "*") -> list[str]:
    """The names that match a shell pattern, sorted."""
    return sorted(matching(NETWORKS, pattern))


# timm's register_model reads it.
default_cfgs = generate_default_cfgs(
    {
        name: dict(
            num_classes=1000,
            input_size=(3, network.size, network.size),
            pool_size=None if network.pool == "token" else (-(-network.size // network.stride),) * 2,
            crop_pct=0.875 if network.size == 224 else 1.0,
            crop_mode=network.crop_mode,
            interpolation="bicubic",
            mean=IMAGENET_DEFAULT_MEAN,
            std=IMAGENET_DEFAULT_STD,
            first_conv=f"backbone.{network.first_conv}",
            classifier="head.fc" if network.hidden is None else "head.fc2",
            license="apache-2.0",
        )
        for name, network in NETWORKS.items()
    }
)


def _build(
    name: str,
    pretrained: bool,
    pretrained_cfg: Any,
    pretrained_cfg_overlay: dict[str, Any] | None,
    features_only: bool,
    feature_cfg: dict[str, Any],
    **options: Any,
) -> nn.Module:
    """timm's builder, with :class:`Features` unless ``feature_cls`` chooses one of timm's wrappers."""
    cfg = resolve_pretrained_cfg(name, pretrained_cfg, pretrained_cfg_overlay)
    if pretrained and not (cfg.has_weights or cfg.state_dict):
        host = f"start from its host with 'timm:{HOSTS[name]}', or " if name in HOSTS else ""
        raise ValueError(
            f"pretrained=True, but no weights of {name!r} are published; {host}name a file: pretrained='{name}.pth' in "
            "mmlisa's create_model, pretrained_cfg_overlay=dict(file='…') in timm's"
        )
    if cfg.file and cfg.source != "local-dir":
        cfg = replace(cfg, custom_load=True)  # load_pretrained reads more kinds of files than timm
    network = NETWORKS[name]
    stages = all_stages(network.backbone, network.arch)
    own = features_only and not (feature_cfg.get("feature_cls") or options.get("feature_cls"))
    if own and "out_indices" in feature_cfg:
        options.setdefault("out_indices", feature_cfg.pop("out_indices"))
    if features_only and not own:
        is_plain = stages[0].stride == stages[-1].stride
        feature_cfg = {"out_indices": PLAIN_LEVELS if is_plain else tuple(range(len(stages))), **feature_cfg}
        options["features_only"] = True
    model = build_model_with_cfg(
        partial(Features if own else Classifier, name),
        name,
        pretrained,
        pretrained_cfg=cfg,
        feature_cfg=feature_cfg,
        pretrained_strict=not own,
        pretrained_filter_fn=_without_head if own else None,
        kwargs_filter=("num_classes", "global_pool", "drop_rate") if features_only else None,
        **options,
    )
    if own:
        model.pretrained_cfg = model.default_cfg = pretrained_cfg_for_features(model.pretrained_cfg)
    return model


def _without_head(state: dict[str, Tensor], model: Features) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in state.items() if name.startswith("backbone.")}


def _register(name: str) -> None:
    def build(
        pretrained: bool = False,
        pretrained_cfg=None,
        pretrained_cfg_overlay=None,
        features_only: bool = False,
        feature_cfg=None,
        **options: Any,
    ) -> nn.Module:
        return _build(
            name, pretrained, pretrained_cfg, pretrained_cfg_overlay, features_only, dict(feature_cfg or {}), **options
        )

    build.__name__ = build.__qualname__ = name
    register_model(build)


__all__ = ["NETWORKS", "Classifier", "Features", "create_model", "list_models"]
for _name in NETWORKS:
    _register(_name)
