"""Checks for silent mistakes: classes of data, head and checkpoint, channels of the neck, shapes of a checkpoint."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from mmlisa.checkpoints import adapt_state_dict, state_dict_of
from mmlisa.errors import UserError

# Places in cfg.model of the heads whose num_classes is the number of classes of the data. Proposal, semantic, boundary and
# re-identification heads are not listed, because theirs has another meaning.
_CLASS_HEADS = ("roi_head.bbox_head", "roi_head.mask_head", "bbox_head", "mask_head", "decode_head", "head")


def check_classes(model: Mapping[str, Any], classes: Sequence[str] | None, setting: str) -> str:
    """Compare ``num_classes`` of the heads with the number of classes of the data.

    Args:
        model: config of a detector, segmentor or classifier. Panoptic models and models that take class names as text are
            not checked.
        classes: class names of the data; None if the data have none.
        setting: place of the data set in the config.

    Returns:
        A warning about heads with more classes than the data; empty if there are none.

    Raises:
        UserError: a head has fewer classes than the data; the message names each head and the right number.
    """
    if classes is None or {"panoptic_fusion_head", "language_model"} & model.keys():
        return ""
    differing = {}
    for place in _CLASS_HEADS:
        heads: Any = model
        for key in place.split("."):
            heads = heads.get(key) if isinstance(heads, Mapping) else None
        for head in heads if isinstance(heads, list | tuple) else [heads]:  # a cascade has a list of heads
            if isinstance(head, Mapping) and head.get("num_classes") not in (None, len(classes)):
                differing[f"model.{place}.num_classes={head['num_classes']}"] = head["num_classes"]
    if not differing:
        return ""
    message = f"{', '.join(differing)}, but {setting} has {_listed(classes)}"
    if min(differing.values()) < len(classes):
        raise UserError(f"{message}: set {len(classes)}")
    return f"{message}: the surplus classes are never trained"


def compare_classes(train: Sequence[str] | None, other: Sequence[str] | None) -> str:
    """Describe the first label that stands for different classes in two lists of classes; empty if there is none."""
    for label, (ours, theirs) in enumerate(zip(train or (), other or (), strict=False)):
        if ours != theirs:
            return (
                f"label {label} is '{ours}' in the training data and '{theirs}' here; both need the same classes in the same "
                "order, and a class without images its folder"
            )
    return ""


def check_channels(model: nn.Module, cfg: Mapping[str, Any]) -> None:
    """Compare the ``in_channels`` of the neck of the config ``cfg.model`` with the maps of a built model's backbone.

    Models without a neck, necks that take one number and backbones of other libraries are not checked.

    Raises:
        UserError: number or channels of the maps differ; the message has the correct setting.
    """
    neck, channels = cfg.get("neck"), getattr(getattr(model, "backbone", None), "feature_channels", None)
    takes = neck.get("in_channels") if isinstance(neck, Mapping) else None
    if channels is None or not isinstance(takes, Sequence):
        return
    if sorted(takes) != sorted(channels):  # some necks, such as YOLOV3Neck, take the coarsest map first
        raise UserError(
            f"model.neck ({neck['type']}) takes in_channels={list(takes)}, but the backbone ({type(model.backbone).__name__}) "
            f"returns maps of {list(channels)} channels. Set model.neck.in_channels={list(channels)}"
        )


def check_shapes(model: nn.Module, checkpoint: Mapping[str, Any], filename: str) -> None:
    """Refuse a checkpoint with a tensor of another shape than the model's, because that part would stay random.

    Raises:
        UserError: a shape differs; the message names the entries and both shapes.
    """
    ours = model.state_dict()
    conflicts = [
        f"{name} is {list(tensor.shape)} in the checkpoint and {list(ours[name].shape)} in the model"
        for name, tensor in adapt_state_dict(model, state_dict_of(checkpoint)).items()
        if isinstance(tensor, Tensor) and name in ours and tensor.shape != ours[name].shape
    ]
    if conflicts:
        classes = saved_metainfo(checkpoint).get("classes")
        trained = f" It was trained for {_listed(classes)}." if classes else ""
        raise UserError(
            f"checkpoint '{filename}' does not fit the config: {'; '.join(conflicts[:4])}.{trained} Use the config that it was "
            "trained with, or set num_classes and the like to match"
        )


def saved_metainfo(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``metainfo`` of the training data that a checkpoint holds; empty if it holds none.

    Data sets that differ leave a list, of which the first counts. Before mmdet 3.0, the keys had capital letters.
    """
    meta = checkpoint.get("meta")
    metainfo = meta.get("dataset_meta") if isinstance(meta, Mapping) else None
    metainfo = next(iter(metainfo), None) if isinstance(metainfo, list) else metainfo
    return {str(key).lower(): value for key, value in metainfo.items()} if isinstance(metainfo, Mapping) else {}


def _listed(classes: Sequence[str]) -> str:
    return f"{len(classes)} classes ({', '.join(classes[:8])}{', …' if len(classes) > 8 else ''})"
