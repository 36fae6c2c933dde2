"""Every named network as a timm model: importing this file enters them into timm's registry.

``timm.create_model('hylisanet_s')`` is a classifier with timm's interface, ``features_only=True`` the pyramid of its maps.
"""

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from fnmatch import filter as matching
from functools import partial
from os import PathLike
from typing import Any, NamedTuple

from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from timm.layers import global_pool_nlc
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from timm.models import create_model as create_timm_model
from timm.models._features import FeatureGetterNet, feature_take_indices
from torch import Tensor, nn

from mmlisa.errors import UserError
from mmlisa.registry import WEIGHT_INITIALIZERS

from . import backbones
from .backbones.base import Backbone
from .layers.blocks import hidden_layers
from .layers.tokens import to_map, to_tokens
from .published import TimmNames


class Network(NamedTuple):
    """A named arch of a host, with the settings of its classifier; the heads are those of the ImageNet configs."""

    host: type[Backbone]
    arch: str
    settings: TimmNames


NETWORKS: dict[str, Network] = {}  # by their timm names


class ClassifierHead(nn.Module):
    """Pooling, the hidden layer if a network has one, dropout, and the classifier, named as mmpretrain's heads name them."""

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
        """Build a classifier, an identity if ``num_classes`` is 0, behind a pooling."""
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
        x = global_pool_nlc(x if self.prefix else to_tokens(x), self.global_pool, self.prefix)
        for name in self.before:
            x = getattr(self, name)(x)
        return x if pre_logits else getattr(self, self.classifier)(x)


class Classifier(nn.Module):
    """A network of :data:`NETWORKS` with the interface of timm's classifiers, and the options of :func:`create_model`.

    Its parameters have the names of an mmpretrain ``ImageClassifier``, ``backbone.*`` and ``head.*``. A level is a stage; the
    blocks of a plain ViT are its stages. A ``features_only`` model has the norms of ``levels``, and no hidden layer.
    """

    def __init__(
        self,
        name: str,
        *,
        num_classes: int = 1000,
        global_pool: str | None = None,
        drop_rate: float = 0.0,
        in_chans: int = 3,
        img_size: int | Sequence[int] | None = None,
        levels: Sequence[int] | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        network, hidden = NETWORKS[name], None
        if levels is None:
            defaults = {k: v for k, v in network.host.classifier.items() if k not in ("out_indices", "out_type")}
            levels, hidden, options = (-1,), network.settings.hidden, {**defaults, **options}
        self.in_chans = in_chans
        self.backbone = backbone = network.host(
            network.arch, in_channels=in_chans, image_size=img_size, out_indices=levels, **options
        )
        layers = [names[-1].removesuffix(".") for names in backbone.layer_names()]
        self.feature_info = [
            dict(num_chs=channels, reduction=stride, module=f"backbone.{layer}", index=i)
            for i, (channels, stride, layer) in enumerate(
                zip(backbone.stage_channels, backbone.stage_strides, layers, strict=True)
            )
        ]
        self.num_features = backbone.stage_channels[-1]
        self.head = ClassifierHead(self.num_features, hidden, drop_rate, backbone.num_extra_tokens)
        self.head_hidden_size = self.head.width
        pool = "token" if backbone.num_extra_tokens else "avg"
        self.reset_classifier(num_classes, pool if global_pool is None else global_pool)

    def forward_features(self, image: Tensor) -> Tensor:
        """``[B, in_chans, H, W]`` -> the last map ``[B, C, H', W']``; with a class token all tokens ``[B, 1 + N, C]``."""
        return self.forward_intermediates(image, 1)[0]

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """The output of :meth:`forward_features` -> ``[B, num_classes]``; with ``pre_logits`` ``[B, head_hidden_size]``."""
        return self.head(x, pre_logits)

    def forward(self, image: Tensor) -> Tensor:
        """``[B, in_chans, H, W]`` -> ``[B, num_classes]``; without classes ``[B, head_hidden_size]``."""
        return self.forward_head(self.forward_features(image))

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
        """Return the outputs of the levels, and the last one as :meth:`forward_features` returns it; the options are timm's.

        With ``norm``, the levels have the norms of the backbone's maps. The ``output_fmt`` of maps is ``'NCHW'``, of tokens
        ``'NLC'``; another one is a UserError.
        """
        if output_fmt not in ("NCHW", "NLC"):
            raise UserError(f"output_fmt={output_fmt!r}; it must be 'NCHW' or 'NLC'")
        prefix, stages = self.backbone.num_extra_tokens, self.backbone.stages
        taken, last = feature_take_indices(len(stages), indices)
        maps, prefixes = [], []
        x, grid = self.backbone.embed(x)
        for i, stage in enumerate(stages[: last + 1] if stop_early or intermediates_only else stages):
            x, grid = stage(x, grid)
            if i in taken:
                tokens = self.backbone.norm_output(x, i) if norm else x
                prefixes.append(tokens[:, :prefix])
                tokens = tokens[:, prefix:]
                maps.append(tokens if output_fmt == "NLC" else to_map(tokens, grid).contiguous())
        with_prefix = bool(prefix) and return_prefix_tokens
        outputs: dict[str, Any] = dict(image_intermediates=maps)
        if with_prefix:
            outputs["image_intermediates_prefix"] = prefixes
        if not intermediates_only:
            x = self.backbone.norm_output(x, i)
            outputs["image_features"] = x if prefix else to_map(x, grid).contiguous()
        if output_dict:
            return outputs
        maps = list(zip(maps, prefixes, strict=True)) if with_prefix else maps
        return maps if intermediates_only else (outputs["image_features"], maps)

    def get_classifier(self) -> nn.Module:
        """Return the last layer; an identity if there are no classes."""
        return getattr(self.head, self.head.classifier)

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Replace the last layer by a new one; with 0 classes, the network returns its input ``[B, head_hidden_size]``.

        ``global_pool`` is ``'avg'``, ``'max'``, ``'token'`` for networks with a class token, or, without classes, ``''`` for the
        output of :meth:`forward_features`; None keeps the pooling. Anything else is a UserError.
        """
        pool = self.head.global_pool if global_pool is None else global_pool
        if pool not in ("avg", "max", "", "token" if self.backbone.num_extra_tokens else ""):
            raise UserError(f"global_pool={pool!r}; it must be 'avg', 'max', '' or, with a class token, 'token'")
        if num_classes and not pool:
            raise UserError(f"num_classes={num_classes} with global_pool=''; it must be 0")
        self.num_classes = num_classes
        self.head.reset(num_classes, pool)
        ours = next(self.backbone.parameters())
        self.head.to(ours.device, ours.dtype)

    def group_matcher(self, coarse: bool = False) -> Callable[[str], int] | dict[str, Any]:
        """Return the layer of a parameter by its name, as ``get_layer_depth`` counts; with ``coarse``, a pattern per stage."""
        if coarse:
            return dict(stem=r"^backbone\.stem\.", blocks=[(r"^backbone\.stages\.(\d+)\.", None)])
        return lambda name: self.backbone.get_layer_depth(name, "backbone.")[0]

    def no_weight_decay(self) -> set[str]:
        """See :meth:`Backbone.no_weight_decay`."""
        return {f"backbone.{name}" for name in self.backbone.no_weight_decay()}

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Recompute the blocks in the backward pass to save memory."""
        self.backbone.set_grad_checkpointing(enable)

    def load_pretrained(self, file: str) -> None:
        """Load a file or another source of ``mmlisa.PublishedWeights``."""
        WEIGHT_INITIALIZERS.build(dict(type="mmlisa.PublishedWeights", source=str(file)))(self)


def create_model(
    name: str, *, pretrained: str | PathLike | None = None, features_only: bool = False, **options: Any
) -> Classifier | FeatureGetterNet:
    """Create a network by its name, as a classifier or as the pyramid of its maps.

    Args:
        name: a name of :func:`list_models`.
        pretrained: a checkpoint of this package's training in mmpretrain, mmdet or mmseg, or of ``mmlisa convert``; or any source
            of ``mmlisa.PublishedWeights``: a file of a host's weights, an address, ``'timm:NAME'``. A host's classifier is taken
            over where its shape is the same.
        features_only: the normed maps of the levels in ``out_indices`` instead of classes.
        **options: ``in_chans``, ``img_size`` (pretraining resolution); of a classifier ``num_classes``, ``global_pool``,
            ``drop_rate`` (before the last layer); of features ``out_indices``; all others are the backbone's.
    """
    if name not in NETWORKS:
        near = get_close_matches(name, NETWORKS, n=3, cutoff=0.4)
        raise UserError(f"name={name!r} is not a network of mmlisa; the closest are {', '.join(near) or 'none'}")
    if pretrained is True:
        raise UserError(
            f"pretrained=True: mmlisa has no weights of {name!r}; give a file, or a source such as 'timm:…' "
            "(docs/published_weights.md)"
        )
    if pretrained:  # load_pretrained reads more kinds of files than timm
        options["pretrained_cfg_overlay"] = dict(file=str(pretrained), custom_load=True)
    return create_timm_model(name, bool(pretrained), features_only=features_only, **options)


def list_models(pattern: str = "*") -> list[str]:
    """Return the names that match a shell pattern, sorted."""
    return sorted(matching(NETWORKS, pattern))


def _build(name: str, pretrained: bool = False, features_only: bool = False, **options: Any) -> nn.Module:
    """Build what timm's ``create_model`` asks for; features are timm's ``FeatureGetterNet`` with the maps' norms."""
    if not features_only:
        return build_model_with_cfg(partial(Classifier, name), name, pretrained, **options)
    cfg = {"feature_cls": partial(FeatureGetterNet, norm=True), **(options.pop("feature_cfg", None) or {})}
    host, arch, _ = NETWORKS[name]
    stages = host.feature_indices or tuple(range(len(host.stage_sizes(host.resolve_arch(arch)))))
    indices = options.pop("out_indices", cfg.get("out_indices", stages))
    levels = tuple(range(-indices, 0)) if isinstance(indices, int) else indices
    return build_model_with_cfg(
        partial(Classifier, name, levels=levels, num_classes=0),
        name,
        pretrained,
        feature_cfg={**cfg, "out_indices": indices},
        features_only=True,
        kwargs_filter=("num_classes", "global_pool", "drop_rate"),
        **options,
    )


# timm's register_model reads these two.
__all__ = ["NETWORKS", "Classifier", "create_model", "list_models", "register_host"]
default_cfgs: dict[str, Any] = {}


def register_host(host: type[Backbone]) -> None:
    """Enter the names of a host, its ``timm``, into timm's registry."""
    for settings in host.timm:
        for text, arch in settings.archs.items():
            name = settings.name.format(text)
            NETWORKS[name] = Network(host, arch, settings)
            default_cfgs.update(generate_default_cfgs({name: _config(NETWORKS[name])}))
            build = partial(_build, name)
            build.__name__, build.__module__ = name, __name__  # read by timm's registry
            register_model(build)


def _config(network: Network) -> dict[str, Any]:
    """Return timm's settings of a network."""
    host, arch, settings = network
    resolved = host.resolve_arch(arch)
    size, stride = resolved.get("image_size", 224), host.stage_sizes(resolved)[-1].stride
    return dict(
        num_classes=1000,
        input_size=(3, size, size),
        pool_size=None if host.num_extra_tokens else (-(-size // stride),) * 2,
        crop_pct=settings.crop_pct,
        crop_mode=settings.crop_mode,
        interpolation="bicubic",
        mean=IMAGENET_DEFAULT_MEAN,
        std=IMAGENET_DEFAULT_STD,
        first_conv=f"backbone.{host.first_conv}",
        classifier="head.fc" if settings.hidden is None else "head.fc2",
        license="apache-2.0",
    )


for _name in backbones.__all__:
    register_host(getattr(backbones, _name))
