"""Every named network as a timm model: importing this file enters them into timm's registry.

``timm.create_model('hylisanet_s')`` is a classifier with timm's interface, ``features_only=True`` the pyramid of its maps.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import filter as matching
from os import PathLike
from typing import Any

from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from timm.models import generate_default_cfgs, get_pretrained_cfg, register_model
from timm.models._features import FeatureInfo
from torch import Tensor, nn

from mmlisa.registry import WEIGHT_INITIALIZERS

from .feature_maps import all_stages, backbone_class
from .mlp_head import hidden_layers


@dataclass(frozen=True)
class Network:
    """A row of :data:`NETWORKS`.

    Attributes:
        backbone, arch: registered name and named arch.
        options: of the backbone under a classifier.
        hidden: options of :func:`hidden_layers`; None for a linear classifier.
        pool: a name of :data:`POOLS`.
        size: height and width of the images it is trained on.
    """

    backbone: str
    arch: str
    options: dict[str, Any] = field(default_factory=dict)
    hidden: dict[str, Any] | None = None
    pool: str = "avg"
    size: int = 224


_JOURNAL = dict(hidden={})
_METAFORMER = dict(options=dict(output_norm=False), hidden=dict(pre_norm=True, activation="SquaredReLU"))
_LAST_NORM = dict(options=dict(output_norm=False))
_CLASS_TOKEN = dict(pool="token")
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
    **_family("LiSANet", {"i": "isotropic"}, "lisanet_{}"),
    **_family("LiSANet", {name: f"v1-{name}" for name in ("tiny", "small", "base")}, "lisanet_v1_{}"),
    **_family("FLattenSwin", _TSB, "flatten_swin_{}"),
    **_family("FLattenSwin", {"b": "base-384"}, "flatten_swin_{}_384", size=384),
    **_family("FLattenPVT", {"t": "tiny", **_SML}, "flatten_pvt_{}"),
    **_family("FLattenSwin", {suffix: f"pola-{arch}" for suffix, arch in _TSB.items()}, "pola_swin_{}"),
    **_family("FLattenSwin", {"b": "pola-base-384"}, "pola_swin_{}_384", size=384),
    **_family("FLattenPVT", {"t": "pola-tiny", **{s: f"pola-{arch}" for s, arch in _SML.items()}}, "pola_pvt_{}"),
    **_family("MILA", _TSB, "mila_{}", **_LAST_NORM),
    **_family("HViT3", _TSB, "h_vit3_{}", **_LAST_NORM),
    **_family("ViT3", _TSB, "vit3_{}"),
    **_family("FLattenPVTv2", ("b0", "b1", "b2", "b3", "b4"), "flatten_pvtv2_{}"),
    **_family("FLattenCSwin", _TSB, "flatten_cswin_{}"),
    **_family("FLattenCSwin", {"b": "base-384"}, "flatten_cswin_{}_384", size=384),
    **_family("FLattenDeiT", {"t": "tiny"}, "flatten_deit_{}", **_CLASS_TOKEN),
    **_family("iViT", _TSB, "ivit_{}", **_METAFORMER),
    **_family(
        "InteractiveViT",
        {"t16": "tiny-16", "t8": "tiny-8", "s16": "small-16", "s8": "small-8"},
        "vit_{}_interactive",
    ),
    **_family(
        "LCNet",
        {f"x{scale}".replace(".", "_"): f"x{scale}" for scale in (0.25, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5)},
        "lcnet_{}",
    ),
    **_family("ESNet", {"x0_75": "x0.75", "x1_0": "x1.0", "x1_25": "x1.25"}, "esnet_{}"),
    **_family("CastlingLCNetViT", _SML, "castling_lcnet_{}"),
    **_family("CastlingESNetViT", _SML, "castling_esnet_{}"),
    **_family("CastlingLeViT", ("128", "192", "256", "384"), "castling_levit_{}"),
    **_family("CastlingDeiT", {"t": "tiny", "b": "base"}, "castling_deit_{}", **_CLASS_TOKEN),
    **_family("CastlingMViTv2", _TSB, "castling_mvitv2_{}"),
    **_family("CastlingViT", {"b": "base"}, "castling_vit_{}", **_CLASS_TOKEN),
}

POOLS: dict[str, Callable[[Tensor], Tensor]] = {
    "avg": lambda x: x.mean((2, 3)),
    "max": lambda x: x.amax((2, 3)),
    "token": lambda x: x[:, 0],
    "": lambda x: x,
}


class ClassifierHead(nn.Module):
    """Pooling, the hidden layer where a network has one, dropout, and the classifier.

    The names are those of mmpretrain's ``LinearClsHead`` and of ``mmlisa.MlpClsHead``.
    """

    def __init__(self, channels: int, hidden: dict[str, Any] | None, drop_rate: float) -> None:
        super().__init__()
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

    def reset(self, num_classes: int, pool: str) -> None:
        """A new classifier, none where ``num_classes`` is 0, behind the pooling ``pool``."""
        fc = nn.Linear(self.width, num_classes) if num_classes else nn.Identity()
        if num_classes:
            nn.init.trunc_normal_(fc.weight, std=0.02)
            nn.init.zeros_(fc.bias)
        self.add_module(self.classifier, fc)
        self.pool = pool

    def forward(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """The last map ``[B, C, H, W]``, or the class token ``[B, 1, C]`` -> ``[B, num_classes]``; without pooling ``x``."""
        x = POOLS[self.pool](x)
        if not self.pool:
            return x
        for name in self.before:
            x = getattr(self, name)(x)
        return x if pre_logits else getattr(self, self.classifier)(x)


class Classifier(nn.Module):
    """A network of :data:`NETWORKS` with the interface of timm's classifiers.

    Its parameters have the names of an mmpretrain ``ImageClassifier``, ``backbone.*`` and ``head.*``.
    """

    def __init__(
        self,
        name: str,
        *,
        num_classes: int = 1000,
        in_chans: int = 3,
        global_pool: str | None = None,
        drop_rate: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__()
        network = NETWORKS[name]
        stages = all_stages(network.backbone, network.arch)
        self.pools = tuple(pool for pool in POOLS if pool != "token" or network.pool == "token")
        if network.pool == "token":
            options["out_type"] = "cls_token"
        self.backbone = backbone_class(network.backbone)(
            arch=network.arch, in_channels=in_chans, out_indices=(len(stages) - 1,), **{**network.options, **options}
        )
        self.feature_info = _feature_info(self.backbone, stages)
        self.num_features = stages[-1].channels
        self.head = ClassifierHead(self.num_features, network.hidden, drop_rate)
        self.head_hidden_size = self.head.width
        self.reset_classifier(num_classes, network.pool if global_pool is None else global_pool)

    def forward_features(self, image: Tensor) -> Tensor:
        """``[B, in_chans, H, W]`` -> the last map ``[B, C, H_4, W_4]``, or the class token ``[B, 1, C]`` if that is pooled."""
        x = self.backbone(image)[-1]
        return x[:, None] if x.ndim == 2 else x

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
                maps as they are; None keeps the pooling.

        Raises:
            ValueError: another pooling, a negative number of classes, or classes on maps.
        """
        pool = self.head.pool if global_pool is None else global_pool
        if pool not in self.pools:
            raise ValueError(f"global_pool={pool!r}; it must be one of {self.pools}")
        if num_classes < 0 or (num_classes and not pool):
            raise ValueError(
                f"num_classes={num_classes} with global_pool={pool!r}; it must be 0 without pooling, else >= 0"
            )
        if "token" in self.pools:
            self.backbone.out_type = "cls_token" if pool == "token" else "featmap"
        self.num_classes = num_classes
        self.head.reset(num_classes, pool)

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Recomputes the blocks in the backward pass to save memory."""
        self.backbone.set_grad_checkpointing(enable)


class Features(nn.Module):
    """The maps of a network of :data:`NETWORKS`, with the interface of timm's ``features_only`` models.

    ``feature_info`` knows the channels and the reduction of every stage; without an index, of those in ``out_indices``.
    """

    def __init__(
        self, name: str, *, out_indices: Sequence[int] | None = None, in_chans: int = 3, **options: Any
    ) -> None:
        super().__init__()
        network = NETWORKS[name]
        if out_indices is not None:
            options["out_indices"] = out_indices
        self.backbone = backbone_class(network.backbone)(arch=network.arch, in_channels=in_chans, **options)
        self.out_indices = self.backbone.out_indices
        stages = all_stages(network.backbone, network.arch)
        self.feature_info = FeatureInfo(_feature_info(self.backbone, stages), self.out_indices)

    def forward(self, image: Tensor) -> list[Tensor]:
        """``[B, in_chans, H, W]`` -> one ``[B, C_i, H / s_i, W / s_i]`` per stage in ``out_indices``, from fine to coarse."""
        return list(self.backbone(image))

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Recomputes the blocks in the backward pass to save memory."""
        self.backbone.set_grad_checkpointing(enable)


def _feature_info(backbone: nn.Module, stages: Sequence[Any]) -> list[dict[str, Any]]:
    names = {module: name for name, module in backbone.named_modules()}
    return [
        dict(
            num_chs=one.channels,
            reduction=one.stride,
            module=f"backbone.{names[backbone.stage_modules(one.stage + 1)[0]]}",
            index=one.stage,
        )
        for one in stages
    ]


def create_model(
    name: str, *, pretrained: str | PathLike | None = None, features_only: bool = False, **options: Any
) -> Classifier | Features:
    """A network by its name, as a classifier or as the pyramid of its maps.

    Args:
        name: a name of :func:`list_models`.
        pretrained: a checkpoint file: of this package's training in mmpretrain, mmdet or mmseg, or of
            ``tools/convert_checkpoint.py``; or any source of ``mmlisa.PublishedWeights``: a file of a host's weights, an
            address, ``'timm:NAME'``. A host's classifier is taken over where its shape is the same.
        features_only: the maps of the stages in ``out_indices`` instead of classes.
        **options: ``in_chans``, ``img_size`` (pretraining resolution); of a classifier ``num_classes``, ``global_pool``,
            ``drop_rate``; of features ``out_indices``; all others are the backbone's: ``attention``, ``drop_path_rate``, …

    Raises:
        FileNotFoundError: no such checkpoint.
        ConnectionError: weights that cannot be downloaded.
        ValueError: an unknown name, or a checkpoint of another network.
    """
    if name not in NETWORKS:
        raise ValueError(f"model {name!r} is unknown; the closest are {get_close_matches(name, NETWORKS, cutoff=0.3)}")
    if "img_size" in options:
        options["image_size"] = options.pop("img_size")
    if features_only:
        for unused in ("num_classes", "global_pool", "drop_rate"):
            options.pop(unused, None)
    model = (Features if features_only else Classifier)(name, **options)
    model.pretrained_cfg = model.default_cfg = get_pretrained_cfg(name).to_dict()
    if pretrained is True:
        raise ValueError(
            f"pretrained=True, but no weights of {name} are published; name a file: pretrained='{name}.pth' in mmlisa's "
            "create_model, pretrained_cfg_overlay=dict(file='…') in timm's"
        )
    if pretrained:
        WEIGHT_INITIALIZERS.build(dict(type="mmlisa.PublishedWeights", source=str(pretrained)))(model)
    return model


def list_models(pattern: str = "*") -> list[str]:
    """The names that match a shell pattern, sorted."""
    return sorted(matching(NETWORKS, pattern))


# timm's register_model reads it.
default_cfgs = generate_default_cfgs(
    {
        name: dict(
            num_classes=1000,
            input_size=(3, network.size, network.size),
            crop_pct=0.875 if network.size == 224 else 1.0,
            interpolation="bicubic",
            mean=IMAGENET_DEFAULT_MEAN,
            std=IMAGENET_DEFAULT_STD,
            classifier="head.fc" if network.hidden is None else "head.fc2",
        )
        for name, network in NETWORKS.items()
    }
)


def _register(name: str) -> None:
    def build(
        pretrained: bool = False, pretrained_cfg=None, pretrained_cfg_overlay=None, cache_dir=None, **options: Any
    ) -> nn.Module:
        file = (pretrained_cfg_overlay or {}).get("file")
        return create_model(name, pretrained=pretrained and (file or True), **options)

    build.__name__ = build.__qualname__ = name
    register_model(build)


__all__ = ["NETWORKS", "Classifier", "Features", "create_model", "list_models"]
for _name in NETWORKS:
    _register(_name)
