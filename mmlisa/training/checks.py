"""Checks of classes against the data, of types, of channels, and of checkpoint shapes."""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from mmcv.transforms import LoadImageFromFile
from mmengine.registry import Registry, root
from torch import Tensor, nn

from mmlisa.checkpoints.loading import adapt_state_dict, state_dict_of
from mmlisa.registry import MODELS

from .config_checks import parts, type_name

# Places in cfg.model of the heads whose num_classes is the number of classes of the data. Proposal, semantic, boundary and
# re-identification heads are not listed, because theirs has another meaning.
_CLASS_HEADS = ("roi_head.bbox_head", "roi_head.mask_head", "bbox_head", "mask_head", "decode_head", "head")


def check_classes(model: Mapping, classes: Sequence[str] | None, setting: str) -> str:
    """Compare ``num_classes`` of the heads with the number of classes of the data.

    Args:
        model: config of a detector, segmentor or classifier. Panoptic models and models that take class names as text are
            not checked.
        classes: class names of the data; None if the data have none.
        setting: place of the data set in the config.

    Returns:
        A warning about heads with more classes than the data; empty if there are none.

    Raises:
        ValueError: a head has fewer classes than the data; the message names each head and the right number.
    """
    if classes is None or {"panoptic_fusion_head", "language_model"} & model.keys():
        return ""
    differing = {}
    for place in _CLASS_HEADS:
        part: Any = model
        for key in place.split("."):
            part = part.get(key) if isinstance(part, Mapping) else None
        for where, head in parts(f"model.{place}", part):
            if (number := head.get("num_classes")) not in (None, len(classes)):
                differing[f"{where}.num_classes={number}"] = number
    if not differing:
        return ""
    message = f"{', '.join(differing)}, but {setting} has {_listed(classes)}"
    if min(differing.values()) < len(classes):
        raise ValueError(f"{message}: set {len(classes)}")
    return f"{message}: the surplus classes are never trained"


def compare_classes(train: Sequence[str] | None, other: Sequence[str] | None) -> str:
    """Return what is wrong if a label stands for one class in training and for another in validation; else an empty string."""
    for label, (ours, theirs) in enumerate(zip(train or (), other or (), strict=False)):
        if ours != theirs:
            return (
                f"label {label} is '{ours}' in the training data and '{theirs}' here, so that results mean nothing; both need "
                "the same classes in the same order, and a class without images its folder"
            )
    return ""


def check_first_image(dataset: Any, setting: str) -> None:
    """Look for the first image of a built data set, if it reads local files; ``setting`` is the data set's place in the config.

    Raises:
        FileNotFoundError: the file is missing; the message names the settings that form its path.
    """
    while inner := getattr(dataset, "dataset", None) or next(iter(getattr(dataset, "datasets", ())), None):
        dataset = inner
    steps = getattr(getattr(dataset, "pipeline", None), "transforms", ())
    if not steps or not isinstance(steps[0], LoadImageFromFile) or not len(dataset):
        return
    own = (getattr(part, key, None) for part in (steps[0], dataset) for key in ("backend_args", "file_client_args"))
    if any(own) or not hasattr(dataset, "get_data_info"):
        return
    path = dataset.get_data_info(0).get("img_path")
    if isinstance(path, str) and "://" not in path and not Path(path).is_file():
        raise FileNotFoundError(
            f"image {path} does not exist, the first one of {setting}: its folder comes from data_root={dataset.data_root!r} and "
            f"data_prefix, which together are {dict(dataset.data_prefix)}"
        )


# --- types ---------------------------------------------------------------------------------------------------------------------


def explain_unknown_type(error: Exception) -> ValueError | None:
    """Replace MMEngine's error for an unknown ``type`` by one that names the closest types; None for any other error."""
    found = re.search(r"([\w.]+) is not in the (\w+)::([\w -]+) registry", str(error))
    if found is None:
        return None
    name, _, kind = found.groups()
    registry = next((r for r in vars(root).values() if isinstance(r, Registry) and r.name == kind), MODELS.parent)
    known = {}  # names as configs write them, by the bare name in lower case; mmlisa's come last, and so win
    for scope, child in [("", registry), *sorted(registry.children.items(), key=lambda child: child[0] == "mmlisa")]:
        getattr(child, "import_all", child.import_from_location)()
        known |= {each.lower(): f"{scope}.{each}".lstrip(".") for each in child.module_dict}
    near = [known[match] for match in get_close_matches(name.split(".")[-1].lower(), known, n=3, cutoff=0.75)]
    ours = sorted(each for each in known.values() if each.startswith("mmlisa."))
    hint = f"did you mean {' or '.join(near)}?" if near else f"mmlisa's are {ours}"
    return ValueError(f"type={name!r} is not a registered {kind}; {hint}")


# --- models --------------------------------------------------------------------------------------------------------------------


def check_channels(model: nn.Module, cfg: Mapping) -> None:
    """Compare the maps of a built model's backbone with what the neck and the heads of its config ``cfg.model`` take.

    Raises:
        ValueError: number or channels of the maps differ; the message has the correct setting.
    """
    channels = getattr(getattr(model, "backbone", None), "feature_channels", None)
    if channels is None:
        return
    channels = list(channels)
    name = type(model.backbone).__name__
    (where, neck), *more = [*parts("model.neck", cfg.get("neck"))] or [("", {})]
    takes = neck.get("in_channels")
    if any("in_channels" in each for _, each in more):  # behind a pooling, for example
        return
    if neck and not (takes is None and "Pooling" in type_name(neck)):
        order = -1 if type_name(neck) == "YOLOV3Neck" else 1  # that neck takes the coarsest map first
        reads_last = takes == channels[-1]  # as CTResNetNeck and DilatedEncoder do
        if takes is not None and not reads_last and _per_map(takes, channels)[::order] != channels:
            raise ValueError(
                f"{where} ({neck['type']}) takes in_channels={_plain(takes)}, but the backbone ({name}, out_indices="
                f"{tuple(getattr(model.backbone, 'out_indices', range(len(channels))))}) returns {len(channels)} maps of "
                f"{channels} channels. Set {where}.in_channels={channels[::order]}"
            )
        return
    for key in cfg:
        for where, head in parts(f"model.{key}", cfg[key]) if key == "head" or key.endswith("_head") else ():
            if (takes := head.get("in_channels")) is not None:
                _check_head(where, head, takes, channels, name)


def _check_head(where: str, head: Mapping, takes: Any, channels: list[int], backbone: str) -> None:
    index = head.get("in_index")
    if index is None:
        # A detector's head reads every map, a classifier's the last, a segmentor's one.
        every = isinstance(takes, Sequence) or where in ("model.rpn_head", "model.bbox_head")
        given = channels if every else channels[-1:]
    else:
        indices = index if isinstance(index, Sequence) else [index]
        if not all(-len(channels) <= i < len(channels) for i in indices):
            raise ValueError(
                f"{where}.in_index={_plain(index)}, but the backbone ({backbone}) returns {len(channels)} maps"
            )
        given = [channels[i] for i in indices]
    wanted = _per_map(takes, given)
    if wanted != given:
        many = f"{where}.in_channels={given if isinstance(takes, Sequence) else given[0]}"
        neck = f"a neck: model.neck=dict(type='FPN', in_channels={channels}, out_channels={wanted[0]}, num_outs=5)"
        raise ValueError(
            f"{where} takes in_channels={_plain(takes)}, but the config has no neck, and the backbone ({backbone}) gives it "
            f"maps of {given} channels. It needs {neck if len(set(given)) > 1 and not isinstance(takes, Sequence) else many}"
        )


def _per_map(takes: Any, maps: Sequence[int]) -> list[int]:
    return list(takes) if isinstance(takes, Sequence) else [takes] * len(maps)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


# --- checkpoints ---------------------------------------------------------------------------------------------------------------


def shape_conflicts(model: nn.Module, checkpoint: Mapping[str, Any]) -> str:
    """Describe the entries of a checkpoint whose shapes differ from the model's, with both shapes; empty if there are none."""
    ours = model.state_dict()
    theirs = adapt_state_dict(model, state_dict_of(checkpoint))
    conflicts = [
        f"{name} is {list(tensor.shape)} in the checkpoint and {list(ours[name].shape)} in the model"
        for name, tensor in theirs.items()
        if isinstance(tensor, Tensor) and name in ours and tensor.shape != ours[name].shape
    ]
    message = "; ".join(conflicts[:4]) + (f"; and {len(conflicts) - 4} more" if len(conflicts) > 4 else "")
    classes = saved_metainfo(checkpoint).get("classes")
    return f"{message}. The checkpoint was trained for {_listed(classes)}" if conflicts and classes else message


def saved_metainfo(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``metainfo`` of the training data that a checkpoint holds; empty if it holds none.

    Data sets that differ leave a list, of which the first counts. Before mmdet 3.0, the keys had capital letters.
    """
    meta = checkpoint.get("meta")
    found = meta.get("dataset_meta") if isinstance(meta, Mapping) else None
    found = next(iter(found), None) if isinstance(found, list) else found
    return {str(key).lower(): value for key, value in found.items()} if isinstance(found, Mapping) else {}


def _listed(classes: Sequence[str]) -> str:
    return f"{len(classes)} classes ({', '.join(classes[:8])}{', …' if len(classes) > 8 else ''})"


def check_shapes(model: nn.Module, checkpoint: Mapping[str, Any], filename: str) -> None:
    """Refuse a checkpoint with a tensor of another shape than the model's, because that part would stay random.

    Raises:
        ValueError: a shape differs; the message names the entries and both shapes.
    """
    if conflicts := shape_conflicts(model, checkpoint):
        raise ValueError(
            f"checkpoint {filename} does not fit the config: {conflicts}. Use the config that it was trained with, or set "
            "num_classes and the like to match"
        )
