"""Config files, and the command line's options applied to them: one path for mmdet, mmseg and mmpretrain configs.

This module imports neither PyTorch nor the OpenMMLab libraries, so that a mistake in a config is reported within a second.
"""

import argparse
from collections.abc import Mapping, Sequence
from copy import deepcopy
from difflib import get_close_matches
from math import inf
from pathlib import Path
from typing import Any

from mmengine.config import Config, ConfigDict, DictAction
from mmengine.logging import print_log

from mmlisa.options import check_key_values, count_processes, find_config

from .config_checks import type_name

# The top-level keys that MMEngine's runner, OpenMMLab's tools and mmlisa's tools read.
TOP_LEVEL = frozenset(
    """model work_dir train_dataloader val_dataloader test_dataloader train_cfg val_cfg test_cfg auto_scale_lr optim_wrapper
    param_scheduler val_evaluator test_evaluator default_hooks custom_hooks data_preprocessor load_from resume launcher env_cfg
    log_processor log_level visualizer default_scope randomness experiment_name sync_bn
    custom_imports find_unused_parameters model_wrapper_cfg runner_type strategy tta_model tta_pipeline
    compile activation_checkpointing efficient_conv_bn_eval""".split()  # noqa: SIM905
)
# Names of variables in OpenMMLab's configs that only look like misspelt keys.
_VARIABLES = frozenset({"models", "test_pipeline"})
# The model of test-time augmentation by library, for configs without `tta_model`.
_TTA_MODELS = {
    "mmdet": dict(type="DetTTAModel", tta_cfg=dict(nms=dict(type="nms", iou_threshold=0.5), max_per_img=100)),
    "mmseg": dict(type="SegTTAModel"),
    "mmpretrain": dict(type="AverageClsScoreTTA"),
}


def innermost_dataset(cfg: Config, split: str) -> ConfigDict:
    """Return the data set of a split without wrappers such as ``RepeatDataset``; empty if the config has no such loader.

    For a ``ConcatDataset``, it is the first data set.
    """
    loader = cfg.get(f"{split}_dataloader")
    dataset = (loader.get("dataset") if isinstance(loader, Mapping) else None) or ConfigDict()
    while isinstance(inner := dataset.get("dataset", (dataset.get("datasets") or [None])[0]), Mapping):
        dataset = inner
    return dataset


def find_metainfo(dataset: Mapping[str, Any]) -> dict[str, Any]:
    """Return the names of a data set's config, where it has some, and else those of its type.

    The config may name a file with a name per line, and mmpretrain's data sets also have an option ``classes``.
    """
    from mmengine.fileio import list_from_file
    from mmengine.registry import DATASETS

    kind, classes = dataset["type"], dataset.get("classes")
    given = {**({"classes": classes} if classes else {}), **(dataset.get("metainfo") or {})}
    for key, value in given.items():
        if isinstance(value, str) and (path := Path(value).expanduser()).is_file():
            given[key] = list_from_file(path)
    if not isinstance(kind, type):
        with DATASETS.switch_scope_and_registry(None) as registry:  # the default scope's
            kind = registry.get(kind)
    return {**kind.METAINFO, **given}


def predicts_masks(model: Mapping[str, Any]) -> bool:
    """Whether the config of a detector has a head for masks; RTMDet-Ins predicts them with the boxes."""
    heads = {**model, **model.get("roi_head", {})}
    if heads.get("mask_head") or heads.get("panoptic_head"):
        return True
    boxes = heads.get("bbox_head")
    return isinstance(boxes, Mapping) and "Ins" in type_name(boxes)


def find_test_pipeline(cfg: Config) -> list[ConfigDict]:
    """Return the steps that read a test image.

    Raises:
        ValueError: the config has no ``test_dataloader``, or one without a pipeline.
    """
    pipeline = innermost_dataset(cfg, "test").get("pipeline")
    if not pipeline:
        raise ValueError(
            f"config '{cfg.filename}' has no test_dataloader with a pipeline, which reads the images; add one, such as "
            "test_dataloader = val_dataloader"
        )
    return pipeline


def parse_options(items: Sequence[str]) -> dict[str, Any]:
    """Parse the items ``KEY=VALUE`` of ``--cfg-options`` as MMEngine does.

    Raises:
        ValueError: an item without ``=``, or with brackets that do not match.
    """
    check_key_values("--cfg-options", items)
    parser = argparse.ArgumentParser()
    parser.add_argument("--options", nargs="+", action=DictAction)
    try:
        return parser.parse_args(["--options", *items]).options if items else {}
    except AssertionError as error:
        raise ValueError(f"--cfg-options: {error}") from error


def load_config(
    filename: str, *, options: dict[str, Any] | None = None, work_dir: str | None = None, launcher: str = "none"
) -> Config:
    """Read a config and apply the command line's options to it.

    Args:
        filename: a file, or the name of a config that ships with mmlisa.
        options: new values by dotted key.
        work_dir: the folder of logs and checkpoints; None for the config's own, or ``work_dirs/<config's name>``.
        launcher: the program that started the processes.

    Raises:
        FileNotFoundError: no such config; the message names the closest ones.
        ValueError: the file is not a valid config, a top-level key is misspelt, or an option names an entry that the config does
            not have.
    """
    path = find_config(filename)
    try:
        cfg = Config.fromfile(path)
    except (SyntaxError, KeyError, TypeError, AttributeError, NameError) as error:
        raise ValueError(f"config '{filename}' cannot be read: {error}") from error
    for key in cfg.keys() - TOP_LEVEL - _VARIABLES:
        if near := get_close_matches(key, TOP_LEVEL, n=1, cutoff=0.88):
            raise ValueError(f"config '{filename}': nothing reads the key '{key}'; did you mean '{near[0]}'?")
    if options:
        new = check_options(cfg, options)
        if new:
            print_log(f"--cfg-options: new in the config: {', '.join(new)}")
        if variables := [key for key in options if key.partition(".")[0] not in TOP_LEVEL]:
            print_log(
                f"--cfg-options: {', '.join(variables)}: a variable of the config file. The entries that were computed from it "
                "keep their values; set these entries instead, such as model.backbone.depth"
            )
        cfg.merge_from_dict(options)
    cfg.launcher = launcher
    if work_dir is not None:
        cfg.work_dir = work_dir
    elif cfg.get("work_dir") is None:
        cfg.work_dir = str(Path("work_dirs") / path.stem)
    for name in ("train_dataloader", "val_dataloader", "test_dataloader"):
        loader = cfg.get(name)
        if not isinstance(loader, Mapping):
            continue
        if not loader.get("num_workers"):
            loader.persistent_workers = False
        if cfg.get("default_scope") == "mmpretrain":
            loader.setdefault("collate_fn", dict(type="default_collate"))
    return cfg


def check_options(cfg: Config, options: Mapping[str, Any]) -> list[str]:
    """Look up each dotted key in the config.

    A key may be new, because much of a config is optional, unless its name is close to that of an existing key. Its first
    part must be in the config or in :data:`TOP_LEVEL`.

    Returns:
        The new keys.

    Raises:
        ValueError: an unknown key; the message names the closest known one.
    """
    return [key for key in options if not _is_known(cfg._cfg_dict, key)]


def _is_known(node: Any, key: str) -> bool:
    parts = key.split(".")
    for depth, part in enumerate(parts):
        path = ".".join(parts[:depth])
        if isinstance(node, Mapping):
            if part in node:
                node = node[part]
                continue
            if depth == 0 and part in TOP_LEVEL:
                return False
            known = sorted({*node, *TOP_LEVEL}) if depth == 0 else list(map(str, node))
            near = get_close_matches(part, known, n=1, cutoff=0.88 if depth else 0.5)
            if near or depth == 0:
                better = ".".join([*parts[:depth], *near, *parts[depth + 1 :]])
                hint = f"did you mean {better}?" if near else f"the config has {', '.join(sorted(node))}"
                raise ValueError(f"--cfg-options: the config has no {'.'.join(parts[: depth + 1])}; {hint}")
            return False
        if isinstance(node, list | tuple):
            if not part.isdigit() or int(part) >= len(node):
                raise ValueError(
                    f"--cfg-options {key}: {path} is a list of {len(node)}; an index from 0 to {len(node) - 1} must follow, "
                    f"not {part!r}"
                )
            node = node[int(part)]
        elif node is None:
            return False
        else:
            raise ValueError(f"--cfg-options {key}: {path} is {node!r}, which has no entries")
    return True


def set_epochs(cfg: Config, epochs: int) -> None:
    """Set the length of the training, and stretch to it the parts of the schedule that are counted in the same unit. Parts for
    which no time is left are removed.

    A training that counts iterations gets ``epochs`` times the images over the batch of all processes.

    Raises:
        ValueError: the config has no training loop, or several schedules.
    """
    loop, parts = cfg.get("train_cfg") or {}, cfg.get("param_scheduler") or []
    key = next((key for key in ("max_epochs", "max_iters") if key in loop), None)
    parts = [parts] if isinstance(parts, Mapping) and "type" in parts else parts  # without it, schedules by optimizer
    if key is None or not isinstance(parts, Sequence):
        raise ValueError(
            f"--epochs '{epochs}': the config has no train_cfg.max_epochs or max_iters, or several schedules"
        )
    length = epochs
    if key == "max_iters":
        from mmengine.registry import DATASETS, init_default_scope

        from .building import guard_process

        guard_process(cfg)
        init_default_scope(cfg.get("default_scope", "mmengine"))
        images = len(DATASETS.build(deepcopy(cfg.train_dataloader.dataset)))
        length = epochs * -(-images // (cfg.train_dataloader.batch_size * count_processes(cfg.get("launcher"))))
    share = length / loop[key]

    def stretch(part: dict[str, Any], *names: str) -> None:
        for name in names:
            if isinstance(moment := part.get(name), int):
                part[name] = max(round(moment * share), min(moment, 1))  # a short warm-up does not vanish

    loop[key] = length
    stretch(loop, "val_begin")
    if loop.get("val_interval", 1) > length:
        loop.val_interval = length
    if loop.get("dynamic_intervals"):
        loop.dynamic_intervals = [(max(round(begin * share), 1), each) for begin, each in loop.dynamic_intervals]
    for part in parts:
        if part.get("by_epoch", True) == (key == "max_epochs"):
            for name in {"milestones", "periods"} & part.keys():
                moments = dict(enumerate(part[name]))
                stretch(moments, *moments)
                part[name] = [*moments.values()]
            stretch(part, "begin", "end", "T_max", "step_size", "total_steps")
            if type_name(part).startswith("Exponential"):
                part["gamma"] **= 1 / share
    epochs_of_hooks = ("switch_epoch", "num_last_epochs", "distill_from", "begin_epoch")
    for hook in cfg.get("custom_hooks") or ():
        if isinstance(hook, Mapping):
            stretch(hook, *(epochs_of_hooks if key == "max_epochs" else ("begin_iter",)))
    if parts:
        cfg.param_scheduler = [part for part in parts if part.get("begin", 0) < (part.get("end") or inf)]


def set_auto_scale_lr(cfg: Config) -> None:
    """Scale the learning rate with the total batch size.

    Raises:
        ValueError: the config does not name the batch size of its learning rate.
    """
    if "base_batch_size" not in (cfg.get("auto_scale_lr") or {}):
        raise ValueError("--auto-scale-lr: the config has no auto_scale_lr.base_batch_size")
    cfg.auto_scale_lr.enable = True


def check_default_device(name: str) -> None:
    """Check that MMEngine trains on the device of ``--device``, after :func:`mmlisa.options.select_device`.

    MMEngine chooses the device itself when it is imported. Of NVIDIA's GPUs only the visible ones count for it.

    Raises:
        ValueError: MMEngine chose a device of another kind.
    """
    from mmengine import device  # imports PyTorch

    chosen = device.get_device()
    if name.partition(":")[0] != chosen:
        missing = "; with PYTORCH_ENABLE_MPS_FALLBACK=1, operators that MPS lacks run on the CPU" * (chosen == "mps")
        raise ValueError(
            f"--device '{name}': MMEngine trains on '{chosen}' on this machine and has no option for another device; leave "
            f"--device out{missing}"
        )


def set_pretrained(cfg: Config, source: str) -> None:
    """Initialize the backbone from ``source``; see :class:`mmlisa.conversion.PublishedWeights`."""
    cfg.model.backbone.init_cfg = dict(type="mmlisa.PublishedWeights", source=source)


def warn_of_random_backbone(cfg: Config) -> str | None:
    """Return a warning if the config names a classifier to start from (``pretrained_by``), but no weights."""
    if "pretrained_by" not in cfg or cfg.model.backbone.get("init_cfg") or cfg.get("load_from") or cfg.get("resume"):
        return None
    return (
        "the backbone starts from random weights; the paper's accuracy needs those that "
        f"{cfg.pretrained_by} makes: --pretrained CHECKPOINT"
    )


def set_amp(cfg: Config) -> None:
    """Train with automatic mixed precision.

    Raises:
        ValueError: there is no GPU, or the config has an optimizer wrapper of another type.
    """
    wrapper = cfg.optim_wrapper
    if "type" in wrapper and type_name(wrapper) not in ("OptimWrapper", "AmpOptimWrapper"):
        raise ValueError(f"--amp needs optim_wrapper.type 'OptimWrapper', but the config has {wrapper.type!r}")
    from mmengine import device  # imports PyTorch

    if device.get_device() in ("cpu", "mps"):
        raise ValueError("--amp needs a GPU: MMEngine's AmpOptimWrapper does not train without a GPU")
    wrapper.type = "AmpOptimWrapper"
    wrapper.setdefault("loss_scale", "dynamic")


def set_tta(cfg: Config) -> None:
    """Test with augmentation: the config's ``tta_model`` and ``tta_pipeline``, or the library's model and a horizontal flip.

    Raises:
        ValueError: the library has no such model for this config.
    """
    scope = cfg.get("default_scope")
    merging = type_name(cfg.get("tta_model") or _TTA_MODELS.get(scope, {}))
    if merging == "DetTTAModel" and predicts_masks(cfg.model):
        raise ValueError(
            "--tta: mmdet merges the boxes of augmented images, but not their masks, and this model has masks"
        )
    if "tta_model" not in cfg:
        if scope not in _TTA_MODELS:
            raise ValueError(f"--tta: the config has no tta_model, and there is no default for default_scope={scope!r}")
        cfg.tta_model = deepcopy(_TTA_MODELS[scope])
    dataset = innermost_dataset(cfg, "test")
    if "tta_pipeline" not in cfg:
        *steps, pack = deepcopy(find_test_pipeline(cfg))
        if scope == "mmdet":  # its model needs the flips to undo them, and mmdet does not pack them by default
            keys = pack.get("meta_keys", ("img_id", "img_path", "ori_shape", "img_shape", "scale_factor"))
            pack.meta_keys = (*dict.fromkeys((*keys, "flip", "flip_direction")),)
        flips = [dict(type="RandomFlip", prob=prob) for prob in (0.0, 1.0)]
        cfg.tta_pipeline = [*steps, dict(type="TestTimeAug", transforms=[flips, [pack]])]
    dataset.pipeline = cfg.tta_pipeline
    cfg.model = ConfigDict(**cfg.tta_model, module=cfg.model)


def set_show_dir(cfg: Config, directory: str | None) -> None:
    """Write a picture of each test image's prediction into ``directory``, or no pictures.

    :class:`mmlisa.visualization.OverlayHook` replaces the drawing hooks of the libraries.
    """
    if not cfg.get("default_hooks"):
        cfg.default_hooks = {}
    hook = cfg.default_hooks.pop("visualization", None)
    if directory is None:
        return
    if hook is None or not type_name(hook).endswith("OverlayHook"):
        hook = dict(type="mmlisa.OverlayHook")
    cfg.default_hooks.visualization = dict(hook, draw=True, test_out_dir=str(Path(directory).resolve()))


def set_classwise(cfg: Config) -> None:
    """Print the AP of each class in a test, where the metric is mmdet's for COCO."""
    evaluators = cfg.get("test_evaluator") or []
    for metric in evaluators if isinstance(evaluators, list | tuple) else [evaluators]:
        if type_name(metric).endswith("CocoMetric"):
            metric.setdefault("classwise", True)
