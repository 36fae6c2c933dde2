"""Checks for silent mistakes: the loss, classes of data, head and checkpoint, channels of the neck, and checkpoints."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

import torch
from mmengine.hooks import Hook
from mmengine.model import BaseTTAModel, is_model_wrapper
from mmengine.runner import Runner
from torch import Tensor, nn

from mmlisa.checkpoints import adapt_state_dict, check_match, state_dict_of
from mmlisa.errors import UserError
from mmlisa.registry import HOOKS

# Places in cfg.model of the heads whose num_classes is the number of classes of the data. Proposal, semantic, boundary and
# re-identification heads are not listed, because theirs has another meaning.
_CLASS_HEADS = ("roi_head.bbox_head", "roi_head.mask_head", "bbox_head", "mask_head", "decode_head", "head")


def check_classes(model: Mapping[str, Any], classes: Sequence[str] | None, setting: str) -> str:
    """Compare ``num_classes`` of the heads of ``cfg.model`` with the classes of the data at ``setting``.

    A head with fewer classes than the data is a UserError; the returned warning names heads with more. Panoptic models and
    models that take class names as text are not checked.
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
            difference = f"label {label} is '{ours}' in the training data and '{theirs}' here"
            return f"{difference}; both need the same classes in the same order, and a class without images its folder"
    return ""


def check_channels(model: nn.Module, cfg: Mapping[str, Any]) -> None:
    """Raise UserError if the ``in_channels`` of the neck of ``cfg.model`` differ from the maps of a built model's backbone.

    Models without a neck, necks that take one number and backbones of other libraries are not checked.
    """
    neck, channels = cfg.get("neck"), getattr(getattr(model, "backbone", None), "feature_channels", None)
    takes = neck.get("in_channels") if isinstance(neck, Mapping) else None
    if channels is None or not isinstance(takes, Sequence):
        return
    if sorted(takes) != sorted(channels):  # some necks, such as YOLOV3Neck, take the coarsest map first
        returned = f"the backbone ({type(model.backbone).__name__}) returns maps of {list(channels)} channels"
        setting = f"model.neck.in_channels={list(channels)}"
        raise UserError(f"model.neck ({neck['type']}) takes in_channels={list(takes)}, but {returned}. Set {setting}")


def check_shapes(model: nn.Module, checkpoint: Mapping[str, Any], filename: str) -> None:
    """Raise UserError if a checkpoint has tensors of other shapes than the model's, because these parts would stay random."""
    ours = model.state_dict()
    conflicts = [
        f"{name} is {list(tensor.shape)} in the checkpoint and {list(ours[name].shape)} in the model"
        for name, tensor in adapt_state_dict(model, state_dict_of(checkpoint)).items()
        if isinstance(tensor, Tensor) and name in ours and tensor.shape != ours[name].shape
    ]
    if conflicts:
        classes = saved_metainfo(checkpoint).get("classes")
        trained = f" It was trained for {_listed(classes)}." if classes else ""
        remedy = "Use the config that it was trained with, or set num_classes and the like to match"
        where = f"checkpoint '{filename}' does not fit the config"
        raise UserError(f"{where}: {'; '.join(conflicts[:4])}.{trained} {remedy}")


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


@HOOKS.register_module()
class FiniteLossHook(Hook):
    """Stop with a FloatingPointError at the first loss that is not finite, before a checkpoint of that iteration is written.

    Each process checks its own losses. Weights that hold NaN, because of gradients or of another process, are not saved.
    """

    priority = "VERY_HIGH"

    def after_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        losses = {name: loss for name, loss in (outputs or {}).items() if "loss" in name}
        values = {name: float(torch.as_tensor(loss).detach()) for name, loss in losses.items()}
        if not all(map(isfinite, values.values())):
            remedies = "Usual remedies are a lower learning rate, a longer warm-up, and optim_wrapper.clip_grad"
            raise FloatingPointError(f"iteration {runner.iter + 1}: {values}. {_last(runner)}. {remedies}")

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        for name, each in checkpoint["state_dict"].items():
            if isinstance(each, Tensor) and each.is_floating_point() and each.isnan().any():
                raise FloatingPointError(f"iteration {runner.iter + 1}: {name} holds NaN. {_last(runner)}")


def _last(runner: Runner) -> str:
    last = runner.message_hub.runtime_info.get("last_ckpt")
    return f"The last checkpoint is {last}" if last else "No checkpoint was saved yet"


@HOOKS.register_module()
class CheckpointGuardHook(Hook):
    """Report how much of the model a loaded checkpoint holds, and refuse a checkpoint that does not fit.

    Values that are not weights and, in a test and a resumed training, the classes of the data in another order are refused, too.

    Args:
        min_matched: share of the model's entries that must match in name and shape, from 0 to 1.
        same_shapes: refuse a checkpoint with any entry of another shape; otherwise only when resuming.
    """

    priority = "VERY_HIGH"  # before the hooks that load averages from the weights

    def __init__(self, min_matched: float, same_shapes: bool = False) -> None:
        self.min_matched, self.same_shapes = min_matched, same_shapes

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        model = runner.model.module if is_model_wrapper(runner.model) else runner.model
        model = model.module if isinstance(model, BaseTTAModel) else model
        filename = str(runner._load_from)
        state = adapt_state_dict(model, state_dict_of(checkpoint, filename))
        checkpoint["state_dict"] = state  # which the runner loads
        if self.same_shapes or runner._resume:
            check_shapes(model, checkpoint, filename)
            _check_order(runner, checkpoint, filename)
        check_match(model, state, filename, self.min_matched)


def _check_order(runner: Runner, checkpoint: dict[str, Any], filename: str) -> None:
    saved = saved_metainfo(checkpoint).get("classes") or ()
    ours = classes_of(runner.train_dataloader if runner._resume else runner.test_dataloader) or ()
    if sorted(ours) == sorted(saved) and list(ours) != list(saved):  # a label of the model means another class
        raise UserError(
            f"checkpoint '{filename}' has its classes in another order: set metainfo.classes to {list(saved)}"
        )


def classes_of(loader: Any) -> Any:
    """Return the class names of a data loader's data set; None if it has none, or joins data sets that differ."""
    metainfo = getattr(loader.dataset, "metainfo", None)
    return metainfo.get("classes") if isinstance(metainfo, dict) else None
