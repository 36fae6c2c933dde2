"""From a config file and command-line options to a runner: one path for mmdet, mmseg and mmpretrain configs."""

from copy import deepcopy
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config, ConfigDict
from mmengine.registry import RUNNERS
from mmengine.runner import Runner

from mmlisa.checkpoints import latest_checkpoint, read_ahead, use_safe_loader

# Test-time augmentation where a config names none: the library's own model, and a horizontal flip. Per scope.
_TTA_MODELS = {
    "mmdet": dict(type="DetTTAModel", tta_cfg=dict(nms=dict(type="nms", iou_threshold=0.5), max_per_img=100)),
    "mmseg": dict(type="SegTTAModel"),
    "mmpretrain": dict(type="AverageClsScoreTTA"),
}


def load_config(
    filename: str, *, options: dict[str, Any] | None = None, work_dir: str | None = None, launcher: str = "none"
) -> Config:
    """Reads a config, applies the command line's options and what the machine dictates.

    Raises:
        FileNotFoundError: no such config; the message names close ones of the same folder.
        ValueError: the file is no valid config.
    """
    path = Path(filename)
    if not path.is_file():
        names = [p.name for p in path.parent.glob("*.py")] if path.parent.is_dir() else []
        near = get_close_matches(path.name, names, n=3, cutoff=0.4)
        raise FileNotFoundError(f"config {filename} does not exist; in {path.parent}/ the closest are {near or 'none'}")
    try:
        cfg = Config.fromfile(path)
    except (SyntaxError, KeyError, TypeError) as error:
        raise ValueError(f"config {filename} cannot be read: {error}") from error
    if options:
        cfg.merge_from_dict(options)
    cfg.launcher = launcher
    if work_dir is not None:
        cfg.work_dir = work_dir
    elif cfg.get("work_dir") is None:
        cfg.work_dir = str(Path("work_dirs") / path.stem)
    if launcher != "none" and not torch.cuda.is_available():
        cfg.model_wrapper_cfg = dict(
            type="MMDistributedDataParallel",
            device_ids=None,
            broadcast_buffers=False,
            find_unused_parameters=cfg.get("find_unused_parameters", False),
        )
    for name in ("train_dataloader", "val_dataloader", "test_dataloader"):
        loader = cfg.get(name)
        if loader is None:
            continue
        if not loader.get("num_workers"):
            loader.persistent_workers = False
        if cfg.get("default_scope") == "mmpretrain":
            loader.setdefault("collate_fn", dict(type="default_collate"))
    return cfg


def set_amp(cfg: Config) -> None:
    """Trains under automatic mixed precision (bfloat16 where there is no GPU)."""
    wrapper = cfg.optim_wrapper
    if wrapper.get("type", "OptimWrapper") not in ("OptimWrapper", "AmpOptimWrapper"):
        raise ValueError(f"--amp needs optim_wrapper.type 'OptimWrapper', but the config has {wrapper.type!r}")
    wrapper.type = "AmpOptimWrapper"
    wrapper.setdefault("loss_scale", "dynamic")
    if not torch.cuda.is_available():
        wrapper.setdefault("dtype", "bfloat16")


def set_resume(cfg: Config, checkpoint: str | None) -> None:
    """Continues from ``checkpoint``, or from the newest whole one of the work dir where None.

    Raises:
        FileNotFoundError: nothing to resume from.
        ValueError: ``checkpoint`` is damaged, unsafe, or not a local file.
    """
    if checkpoint and "://" in checkpoint:
        raise ValueError(
            f"--resume continues a training from a local file, not from {checkpoint}; to start from downloaded weights, "
            f"use --cfg-options load_from={checkpoint}"
        )
    source = checkpoint or latest_checkpoint(cfg.work_dir)
    if source is None:
        raise FileNotFoundError(
            f"--resume: {cfg.work_dir} has no checkpoint to continue from; name one, or train without it"
        )
    if checkpoint:
        read_ahead(checkpoint)
    cfg.resume, cfg.load_from = True, source


def set_tta(cfg: Config) -> None:
    """Tests with augmentation: the config's ``tta_model`` and ``tta_pipeline``, or the library's model and a flip."""
    scope = cfg.get("default_scope")
    if "tta_model" not in cfg:
        if scope not in _TTA_MODELS:
            raise ValueError(f"--tta: the config has no tta_model, and there is no default for default_scope={scope!r}")
        cfg.tta_model = deepcopy(_TTA_MODELS[scope])
    dataset = cfg.test_dataloader.dataset
    while "dataset" in dataset:
        dataset = dataset.dataset
    if "tta_pipeline" not in cfg:
        *steps, pack = deepcopy(dataset.pipeline)
        if "Det" in pack.type:
            pack.meta_keys = (
                *pack.get("meta_keys", ("img_id", "img_path", "ori_shape", "img_shape", "scale_factor")),
                "flip",
            )
            pack.meta_keys = (*pack.meta_keys, "flip_direction")
        flips = [dict(type="RandomFlip", prob=prob) for prob in (0.0, 1.0)]
        cfg.tta_pipeline = [*steps, dict(type="TestTimeAug", transforms=[flips, [pack]])]
    dataset.pipeline = cfg.tta_pipeline
    cfg.model = ConfigDict(**cfg.tta_model, module=cfg.model)


def set_show_dir(cfg: Config, directory: str) -> None:
    """Writes a picture of each test image's prediction into ``directory``."""
    directory = str(Path(directory).resolve())
    hook = cfg.default_hooks.get("visualization")
    if hook is None:
        raise ValueError("--show-dir: the config has no default_hooks.visualization to draw with")
    # Each library's hook names its switches its own way.
    if hook.type.endswith("DetVisualizationHook"):
        hook.update(draw=True, test_out_dir=directory)
    elif hook.type.endswith("SegVisualizationHook"):
        hook.update(draw=True, interval=1)
        cfg.visualizer.save_dir = directory
    else:
        hook.update(enable=True, interval=1, out_dir=directory)


def build_runner(cfg: Config, min_matched: float) -> Runner:
    """The runner of a config, whose checkpoints are read safely and refused where less than ``min_matched`` of them fits."""
    use_safe_loader()
    if cfg.get("launcher") == "pytorch" and not torch.cuda.is_available() and not torch.distributed.is_initialized():
        # MMEngine's own initialisation, and its default wrapper of the model, take a GPU for granted.
        torch.distributed.init_process_group("gloo")
    cfg.custom_hooks = [*cfg.get("custom_hooks", []), dict(type="mmlisa.CheckpointGuardHook", min_matched=min_matched)]
    return RUNNERS.build(cfg) if "runner_type" in cfg else Runner.from_cfg(cfg)
