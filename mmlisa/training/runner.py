"""From a config to a runner, and a training with it. Silent mistakes are refused: classes, maps, checkpoints, the loss."""

import logging
import warnings
from collections.abc import Mapping, Sequence
from copy import deepcopy
from math import isfinite
from typing import Any

import torch
from mmengine.config import Config
from mmengine.device import get_device
from mmengine.hooks import EMAHook, Hook
from mmengine.logging import MMLogger
from mmengine.model import BaseTTAModel, MMDistributedDataParallel, is_model_wrapper, revert_sync_batchnorm
from mmengine.registry import RUNNERS
from mmengine.runner import Runner
from torch import Tensor, nn

from mmlisa.checkpoints import fresh_in_a_start, judge, list_classes, saved_metainfo
from mmlisa.errors import UserError
from mmlisa.registry import HOOKS, MODEL_WRAPPERS

from .config import import_quietly, warn_of_schedule
from .inputs import compare_statistics, warn_of_inputs
from .maps import check_sizes, check_strides
from .metrics import check_evaluation
from .saving import InterruptHook, ScheduleHook, locked

# Places in cfg.model of the heads whose num_classes is the number of classes of the data. Proposal, semantic, boundary and
# re-identification heads are not listed, because theirs has another meaning.
_CLASS_HEADS = ("roi_head.bbox_head", "roi_head.mask_head", "bbox_head", "mask_head", "decode_head", "head")
# The beginnings of log records hidden from the console.
_NOISE = (
    "\n------------------------------------------------------------\nSystem environment",
    "Config:\n",
    "Hooks will be executed in the following order",
    "Distributed training is not used, all SyncBatchNorm",
    "paramwise_options --",
    '"FileClient" will be deprecated',
    '"HardDiskBackend" is the alias',
    "Exp name:",
)


def _is_noise(message: str) -> bool:
    # MMEngine names each parameter of a frozen part.
    return message.startswith(_NOISE) or message.endswith("is skipped since its requires_grad=False")


class QuietRunner(Runner):
    """MMEngine's runner with a console that shows progress, results and warnings only."""

    def build_logger(self, *args, **kwargs) -> MMLogger:
        logger = super().build_logger(*args, **kwargs)
        for handler in logger.handlers:
            if not isinstance(handler, logging.FileHandler):
                handler.addFilter(lambda record: not _is_noise(record.getMessage()))
        return logger


def build_runner(cfg: Config, *, may_differ: Sequence[str] = (), whole: bool = False, verbose: bool = True) -> Runner:
    """Build the runner of a whole config with mmlisa's checks, its atomic checkpoints and its handling of signals.

    A backbone that does not fit the neck, maps that do not fit the heads' strides, and two hooks that average the weights are
    UserErrors.

    Args:
        cfg: it is not changed.
        may_differ: what need not agree with a checkpoint, unless ``custom_hooks`` has a :class:`CheckpointGuardHook`.
        whole: for a test: the checkpoint must hold the whole model, whatever ``custom_hooks`` says.
        verbose: print everything that MMEngine logs.
    """
    if not verbose:
        import_quietly(cfg.get("default_scope"))
    cfg = _prepare(cfg)
    default = Runner if verbose else QuietRunner
    runner = RUNNERS.build(cfg) if "runner_type" in cfg else default.from_cfg(cfg)
    if sum(isinstance(hook, EMAHook) for hook in runner.hooks) > 1:
        raise UserError("custom_hooks has two EMA hooks, which overwrite the weights at each validation; keep one")
    configured = set() if whole else {type(hook) for hook in runner.hooks}
    for hook in (FiniteLossHook(), CheckpointGuardHook(may_differ, whole), InterruptHook(), ScheduleHook()):
        if type(hook) not in configured:
            runner.register_hook(hook)
    model = _innermost(runner.model)
    model = getattr(model, "detector", model)  # of tiles
    check_channels(model, _innermost_model(runner.cfg))
    for note in (check_strides(model), compare_statistics(model)):
        if note:
            runner.logger.warning(note)
    return runner


def _innermost(model: nn.Module) -> nn.Module:
    """Return a model without the wrappers of parallel training and of test-time augmentation."""
    model = model.module if is_model_wrapper(model) else model
    return model.module if isinstance(model, BaseTTAModel) else model


@MODEL_WRAPPERS.register_module()
class CPUDataParallel(MMDistributedDataParallel):
    """MMEngine's wrapper for processes on CPUs, where PyTorch's norms over processes do not run."""

    def __init__(self, module: nn.Module, **options: Any) -> None:
        if any(isinstance(each, nn.SyncBatchNorm) for each in module.modules()):
            module = revert_sync_batchnorm(module)
            MMLogger.get_current_instance().warning("SyncBN needs GPUs: each process has batch norms of its own")
        super().__init__(module, **options)


def _prepare(cfg: Config) -> Config:
    """Return a copy of a config with atomic checkpoints, mmlisa's loop, and a model wrapper for processes on CPUs."""
    cfg = deepcopy(cfg)
    cfg.default_hooks = {"checkpoint": dict(type="CheckpointHook", interval=1), **(cfg.get("default_hooks") or {})}
    if (saving := cfg.default_hooks.checkpoint) and "://" not in str(saving.get("out_dir")):
        saving.setdefault("backend_args", dict(backend="mmlisa.atomic"))
    loop = cfg.get("train_cfg") or {}
    if "max_epochs" in loop and loop.get("type", "EpochBasedTrainLoop") == "EpochBasedTrainLoop":
        loop.pop("by_epoch", None)
        loop.type = "mmlisa.EpochBasedTrainLoop"
    if cfg.get("launcher") == "pytorch" and get_device() == "cpu":
        # MMEngine's own initialisation and its default model wrapper need GPUs.
        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group("gloo")
        default: dict[str, Any] = dict(type="mmlisa.CPUDataParallel", broadcast_buffers=False)
        default["find_unused_parameters"] = cfg.get("find_unused_parameters", False)
        cfg.model_wrapper_cfg = {**default, **(cfg.get("model_wrapper_cfg") or {}), "device_ids": None}
    return cfg


def _innermost_model(cfg: Config) -> dict[str, Any]:
    model = cfg.get("model") or {}  # maybe in a wrapper for test-time augmentation or tiles
    return model.get("module") or model.get("detector") or model


def _check_classes(runner: Runner, split: str) -> None:
    loader = getattr(runner, f"{split}_dataloader")
    setting = f"{split}_dataloader.dataset"
    if note := check_classes(_innermost_model(runner.cfg), classes_of(loader), setting):
        runner.logger.warning(note)
    _check_categories(loader.dataset, setting)


def _check_categories(dataset: Any, setting: str) -> None:
    """Raise UserError if mmdet's CocoDataset found no category for a class: it leaves the class out without a word."""
    if hasattr(dataset, "datasets"):
        for inner in dataset.datasets:
            _check_categories(inner, setting)
    elif hasattr(dataset, "dataset"):
        _check_categories(dataset.dataset, setting)
    elif hasattr(dataset, "cat_ids"):
        classes, found = dataset.metainfo["classes"], len(dataset.cat_ids)
        if found < len(classes):
            raise UserError(
                f"{setting}: only {found} of its {list_classes(classes)} are categories of '{dataset.ann_file}'; "
                "set metainfo.classes to its names, which mmlisa check-data CONFIG lists"
            )


def _check_sizes(runner: Runner, split: str) -> None:
    if note := check_sizes(_innermost(runner.model), getattr(runner, f"{split}_dataloader").dataset, split):
        runner.logger.warning(note)


def test(runner: Runner) -> dict[str, float]:
    """Test, and return the metrics.

    A head with fewer classes than the data (more are a warning), images that the network does not take and a wrong evaluation
    are UserErrors.
    """
    _check_classes(runner, "test")
    _check_sizes(runner, "test")
    check_evaluation(runner, "test")
    return runner.test()


def train(runner: Runner) -> None:
    """Train, and restore the handlers of signals.

    Raises:
        UserError: a head has fewer classes than the data, training and validation differ in theirs, the network does not take
            the images of the validation, or the evaluation cannot work.
        BlockingIOError: another training writes into the work dir.
        FloatingPointError: a loss is not finite.
    """
    _check_not_empty(runner)
    _check_classes(runner, "train")
    if note := warn_of_schedule(runner.cfg, len(runner.train_dataloader)):
        runner.logger.warning(note)
    if runner.val_loop is not None:
        _check_classes(runner, "val")
        names = (classes_of(loader) or () for loader in (runner.train_dataloader, runner.val_dataloader))
        for label, (trained, tested) in enumerate(zip(*names, strict=False)):
            if trained != tested:
                difference = f"label {label} is '{tested}', and '{trained}' in the training data"
                remedy = "both need the same classes in the same order, and a class without images its folder"
                raise UserError(f"val_dataloader.dataset: {difference}; {remedy}")
        _check_sizes(runner, "val")
        check_evaluation(runner, "val")
    with locked(runner.work_dir):
        try:
            runner.train()
        finally:
            for hook in runner.hooks:
                if isinstance(hook, InterruptHook):
                    hook.restore()


def _check_not_empty(runner: Runner) -> None:
    """Build the loops, and with them the data sets. NumPy cannot concatenate the samples of an empty one."""
    for split in ("train", "val"):
        try:
            loop = getattr(runner, f"{split}_loop")
            is_empty = loop is not None and len(loop.dataloader) == 0
        except ValueError as error:
            is_empty = "need at least one array" in str(error)
            if not is_empty:
                raise
        if is_empty:
            remedy = "`mmlisa check-data CONFIG` lists what it names"
            raise UserError(f"{split}_dataloader.dataset has no image, or not one that counts; {remedy}")


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
    message = f"{', '.join(differing)}, but {setting} has {list_classes(classes)}"
    if min(differing.values()) < len(classes):
        raise UserError(f"{message}: set {len(classes)}")
    return f"{message}: the surplus classes are never trained"


def warn_of_names(model: Mapping[str, Any], names: Sequence[str], metainfo: Mapping[str, Any]) -> None:
    """Compare the class names by which predictions are shown with the heads of ``cfg.model``, see :func:`check_classes`.

    ``metainfo`` is the checkpoint's; if it is empty, the names are those of the config's test data.
    """
    source = "dataset_meta of the checkpoint"
    if not metainfo:
        source = "test_dataloader.dataset.metainfo (the checkpoint names no classes)"
    if note := check_classes(model, names or None, source):
        warnings.warn(note, stacklevel=3)


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


def check_saved_classes(
    checkpoint: Mapping[str, Any], classes: Sequence[str] | None, split: str, filename: str
) -> None:
    """Raise UserError if a label of a checkpoint stands for another class than in the data of a split.

    A test on a part of the checkpoint's classes is refused, too. Other numbers of classes are not compared here: a head of
    another size is refused as weights.
    """
    saved = saved_metainfo(checkpoint).get("classes") or ()
    if classes is None:
        return
    if split == "test" and set(classes) < set(saved):
        difference = f"was trained for {', '.join(saved)}, and test_dataloader.dataset has only {', '.join(classes)}"
        remedy = "Set metainfo.classes to all of them; mmlisa test lists the results per class"
        raise UserError(f"checkpoint '{filename}' {difference}: the labels would mean other classes. {remedy}")
    if len(classes) != len(saved):
        return
    for label, (trained, ours) in enumerate(zip(saved, classes, strict=True)):
        if trained != ours:
            difference = f"label {label} is '{trained}' in it and '{ours}' in {split}_dataloader.dataset"
            raise UserError(f"checkpoint '{filename}': {difference}; set metainfo.classes to {list(saved)}")


@HOOKS.register_module()
class FiniteLossHook(Hook):
    """Stop with a FloatingPointError at the first loss that is not finite, before a checkpoint of that iteration is written.

    Each process checks its own losses. Weights that are not finite, because of gradients or of another process, are not saved.
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
            if isinstance(each, Tensor) and each.is_floating_point() and not each.isfinite().all():
                raise FloatingPointError(f"iteration {runner.iter + 1}: {name} is not finite. {_last(runner)}")


def _last(runner: Runner) -> str:
    last = runner.message_hub.runtime_info.get("last_ckpt")
    return f"The last checkpoint is {last}" if last else "No checkpoint was saved yet"


@HOOKS.register_module()
class CheckpointGuardHook(Hook):
    """Judge the checkpoints that a runner loads, and note the options of the backbone in those that it saves.

    Test and resume need a whole checkpoint of the model, with the classes of the data. A training that starts from
    one needs the backbone; see :func:`mmlisa.checkpoints.judge` and :func:`mmlisa.checkpoints.fresh_in_a_start`.

    Args:
        may_differ: parts, entries or options that need not agree.
        whole: the checkpoint must hold the whole model, also if no training is resumed.
    """

    priority = "VERY_HIGH"  # before the hooks that load averages from the weights

    def __init__(self, may_differ: Sequence[str] = (), whole: bool = False) -> None:
        self.may_differ, self.whole = tuple(may_differ), whole

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        model, filename = _innermost(runner.model), str(runner._load_from)
        may_differ = [*self.may_differ]
        if runner._resume:
            check_saved_classes(checkpoint, classes_of(runner.train_dataloader), "train", filename)
        elif self.whole:
            check_saved_classes(checkpoint, classes_of(runner.test_dataloader), "test", filename)
            warn_of_inputs(checkpoint, runner.cfg, filename)
        else:
            may_differ += fresh_in_a_start(model, checkpoint)
        checkpoint["state_dict"] = judge(model, checkpoint, filename, may_differ)  # which the runner loads

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        backbone = getattr(_innermost(runner.model), "backbone", None)
        if hasattr(backbone, "settings"):
            checkpoint["meta"]["backbone"] = backbone.settings()


def classes_of(loader: Any) -> Any:
    """Return the class names of a data loader's data set; None if it has none, or joins data sets that differ."""
    metainfo = getattr(loader.dataset, "metainfo", None)
    return metainfo.get("classes") if isinstance(metainfo, dict) else None
