"""Checks before the first iteration: evaluations that would stop at their end, and those whose numbers would be wrong."""

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from mmengine.config import Config
from mmengine.evaluator import BaseMetric
from mmengine.hooks import CheckpointHook, EarlyStoppingHook
from mmengine.model import is_model_wrapper
from mmengine.runner import Runner, TestLoop, ValLoop
from torch import nn

from mmlisa.errors import UserError

from .config import type_name

# Libraries whose models return no losses in a validation, which MMEngine would add to the metrics.
_LIBRARIES = {"mmdet", "mmseg", "mmpretrain", "mmlisa"}
_COCO_ITEMS = ("mAP", "mAP_50", "mAP_75", "mAP_s", "mAP_m", "mAP_l")
_RECALL_ITEMS = ("AR@100", "AR@300", "AR@1000", "AR_s@1000", "AR_m@1000", "AR_l@1000")
_IOU_ITEMS = {"mIoU": ("IoU", "Acc"), "mDice": ("Dice", "Acc"), "mFscore": ("Fscore", "Precision", "Recall")}


def check_evaluation(runner: Runner, split: str) -> None:
    """Check the metrics of a ``split``, ``val`` of a training or ``test``, and the names by which hooks follow them.

    Loops of other libraries are not checked.

    Raises:
        UserError: top-k has fewer classes than k, mmdet's CocoMetric would count wrongly, the validation data has no object, or
            a hook follows a metric that the validation does not return.
    """
    loop = getattr(runner, f"{split}_loop")
    if not isinstance(loop, ValLoop | TestLoop):
        return
    model = runner.model.module if is_model_wrapper(runner.model) else runner.model
    dataset = loop.dataloader.dataset
    for metric in loop.evaluator.metrics:
        name = _name(metric)
        if name == "mmpretrain.Accuracy":
            _check_topk(metric, runner.cfg, split)
        if name == "mmdet.CocoMetric":
            _check_mmdets_metric(metric, dataset, split)
        if split == "val" and name in ("mmdet.CocoMetric", "mmlisa.CocoMetric") and not metric.format_only:
            check_objects(dataset)
    if split == "val":
        _check_names(runner, loop, model)


def _name(metric: BaseMetric) -> str:
    """Return the library and the class of a metric; a class that a user derives from a library's has another library."""
    return f"{type(metric).__module__.partition('.')[0]}.{type(metric).__name__}"


def _check_topk(metric: Any, cfg: Config, split: str) -> None:
    head = (cfg.get("model") or {}).get("head")
    number = head.get("num_classes") if isinstance(head, Mapping) else None
    if number is not None and max(metric.topk) > number:
        possible = tuple(k for k in metric.topk if k <= number) or (1,)
        raise UserError(f"{split}_evaluator.topk={metric.topk}: the head has {number} classes; set topk={possible}")


def _check_mmdets_metric(metric: Any, dataset: Any, split: str) -> None:
    if (truth := metric._coco_api) is None:
        return
    remedy = f"set {split}_evaluator.type='mmlisa.CocoMetric'"
    ids = truth.get_cat_ids(cat_names=metric.dataset_meta["classes"])
    if metric.classwise and ids != sorted(ids):
        reason = "mmdet's CocoMetric permutes AP per class, because the ids of the categories do not rise in the file"
        raise UserError(f"{split}_evaluator.classwise=True: {reason}; {remedy}")
    if len(dataset) < len(truth.imgs):
        part = f"{split}_dataloader.dataset has {len(dataset)} of the {len(truth.imgs)} images of {split}_evaluator.ann_file"
        raise UserError(f"{part}, and mmdet's CocoMetric counts the others as missed; {remedy}")


def check_objects(dataset: Any) -> None:
    """Raise UserError if mmdet's data set has no object in any image; other data sets are not checked."""
    if not hasattr(dataset, "get_data_info"):
        return
    for index in range(len(dataset)):
        instances = dataset.get_data_info(index).get("instances")
        if instances is None or not all(entry.get("ignore_flag") for entry in instances):
            return
    remedy = "name a file with annotations of these classes, or set val_cfg, val_dataloader and val_evaluator to None"
    raise UserError(f"val_dataloader.dataset: none of the {len(dataset)} images has an object to evaluate; {remedy}")


def _check_names(runner: Runner, loop: ValLoop, model: nn.Module) -> None:
    metrics = loop.evaluator.metrics
    unknown = [type(metric).__name__ for metric in metrics if _name(metric) not in _KEYS]
    for part, known in ((loop, type(loop) is ValLoop), (model, type(model).__module__.partition(".")[0] in _LIBRARIES)):
        if not known:
            unknown.append(type(part).__name__)
    keys = []
    for metric in metrics:
        prefix = f"{metric.prefix}/" if metric.prefix else ""
        keys += [prefix + key for key in _KEYS.get(_name(metric), lambda _: [])(metric)]
    for setting, name in _followed(runner):
        if name in keys:
            continue
        if unknown:
            reason = f"which metrics {', '.join(unknown)} will return is not known before the first validation"
            runner.logger.warning(f"{setting}='{name}' was not checked: {reason}")
            continue
        if not keys:  # format_only; MMEngine's hooks say that they skip empty results
            continue
        sentences = [f"{setting}='{name}' is not a metric of the validation, which returns {_listed(keys)}"]
        if closest := [key for key in keys if key.endswith(f"/{name}")] or get_close_matches(name, keys):
            sentences.append(f"Did you mean '{closest[0]}'?")
        if any(getattr(metric, "classwise", None) is False for metric in metrics):
            sentences.append("val_evaluator.classwise=True adds those of each class")
        raise UserError(". ".join(sentences))


def _listed(keys: Sequence[str]) -> str:
    return ", ".join(keys[:20]) + (", …" if len(keys) > 20 else "")


def _followed(runner: Runner) -> list[tuple[str, str]]:
    """Return the settings that name a metric, and the metrics; derived hooks may know more metrics and are left out."""
    names = []
    for hook in runner.hooks:
        if type(hook) is CheckpointHook:
            names += [("save_best", name) for name in hook.save_best or () if name != "auto"]
        elif type(hook) is EarlyStoppingHook:
            names.append(("EarlyStoppingHook.monitor", hook.monitor))
    schedule = runner.cfg.get("param_scheduler") or []
    for entry in [schedule] if isinstance(schedule, Mapping) else schedule:
        if (kind := type_name(entry)).startswith("ReduceOnPlateau"):
            names.append((f"{kind}.monitor", entry.get("monitor", "loss")))
    return names


def _coco_keys(metric: Any) -> list[str]:
    if metric.format_only:
        return []
    keys, kinds = [], [kind for kind in metric.metrics if kind in ("bbox", "segm")]
    if "proposal_fast" in metric.metrics:
        keys += [f"AR@{number}" for number in metric.proposal_nums]
    if "proposal" in metric.metrics:
        keys += metric.metric_items or _RECALL_ITEMS
    keys += [f"{kind}_{item}" for kind in kinds for item in metric.metric_items or _COCO_ITEMS]
    if metric.classwise and kinds:
        beginnings = [f"{kind}_" for kind in kinds] if _name(metric) == "mmlisa.CocoMetric" else [""]
        keys += [f"{start}{name}_precision" for start in beginnings for name in metric.dataset_meta["classes"]]
    return keys


def _iou_keys(metric: Any) -> list[str]:
    if metric.format_only:
        return []
    kinds = [metric.metrics] if isinstance(metric.metrics, str) else metric.metrics
    names = [name for kind in kinds for name in _IOU_ITEMS.get(kind, ())]
    keys = ["aAcc", *(f"m{name}" for name in names)]
    if getattr(metric, "classwise", False):
        keys += [f"{name}.{label}" for name in names for label in metric.dataset_meta["classes"]]
    return keys


def _accuracy_keys(metric: Any) -> list[str]:
    if len(metric.thrs) == 1:
        return [f"top{k}" for k in metric.topk]
    ends = ["no-thr" if threshold is None else f"thr-{threshold:.2f}" for threshold in metric.thrs]
    return [f"top{k}_{end}" for k in metric.topk for end in ends]


# The keys of the metrics' results, without the prefix. Of other metrics they are not known.
_KEYS: dict[str, Callable[[Any], list[str]]] = {
    "mmdet.CocoMetric": _coco_keys,
    "mmlisa.CocoMetric": _coco_keys,
    "mmseg.IoUMetric": _iou_keys,
    "mmlisa.IoUMetric": _iou_keys,
    "mmlisa.PairedIoUMetric": _iou_keys,
    "mmpretrain.Accuracy": _accuracy_keys,
}
