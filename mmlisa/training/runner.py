"""From a config to a runner, and a training with it."""

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.device import get_device
from mmengine.dist import barrier
from mmengine.model import is_model_wrapper
from mmengine.registry import RUNNERS
from mmengine.runner import Runner

from mmlisa.checkpoints import latest_checkpoint, load_checkpoint, outline

from .building import guard_process
from .checks import check_channels, explain_unknown_type
from .config_checks import type_name
from .interrupts import InterruptHook, end_workers_with_process
from .log import QuietRunner, import_quietly
from .seeding import seed_samples


def set_resume(cfg: Config, checkpoint: str | None) -> None:
    """Continue from ``checkpoint``, or from the newest valid checkpoint of the work dir if it is None.

    Raises:
        FileNotFoundError: there is no checkpoint to continue from.
        ValueError: ``checkpoint`` is damaged, unsafe, or not a local file.
    """
    if checkpoint and "://" in checkpoint:
        raise ValueError(
            f"--resume '{checkpoint}' is not a local file; to start from downloaded weights, use "
            f"--cfg-options load_from={checkpoint}"
        )
    source = checkpoint or latest_checkpoint(*_folders(cfg))
    if source is None:
        raise FileNotFoundError(
            f"--resume: '{cfg.work_dir}' has no checkpoint to continue from; name a checkpoint, or train without --resume"
        )
    if checkpoint:
        load_checkpoint(checkpoint)  # a damaged file is refused before anything is built
    cfg.resume, cfg.load_from = True, source


def _folders(cfg: Config) -> list[Path]:
    """The folders that the training of a config saves checkpoints into, those of an interrupt first."""
    folders = [Path(cfg.work_dir)]
    out_dir = ((cfg.get("default_hooks") or {}).get("checkpoint") or {}).get("out_dir")
    if out_dir and "://" not in out_dir:
        folders.append(Path(out_dir, folders[0].absolute().name))  # as MMEngine does
    return folders


def build_runner(cfg: Config, min_matched: float, *, same_shapes: bool = False, verbose: bool = True) -> Runner:
    """Build the runner of a config, with mmlisa's checks, its safe and atomic checkpoints, and its handling of signals.

    Args:
        cfg: a whole config, as :func:`mmlisa.training.config.load_config` returns it.
        min_matched: share of the model's entries that a checkpoint must hold.
        same_shapes: refuse a checkpoint with any entry of another shape; otherwise that is a warning.
        verbose: print everything that MMEngine logs.

    Raises:
        ValueError: a ``type`` that does not exist, a backbone that does not fit the neck, a work dir whose config would be
            overwritten, or a launcher other than torchrun without a GPU.
    """
    guard_process(cfg)
    _keep_config(cfg)
    end_workers_with_process()
    if cfg.get("resume") and not cfg.get("load_from"):
        # MMEngine would follow last_checkpoint, whatever that file names.
        cfg.load_from = latest_checkpoint(*_folders(cfg))
        cfg.resume = cfg.load_from is not None
    _take_seed(cfg)
    if not verbose:
        import_quietly(cfg.get("default_scope"))
    _prepare_cpu_processes(cfg)
    added = [
        dict(type="mmlisa.ProgressHook"),
        dict(type="mmlisa.ThreadsHook"),
        dict(type="mmlisa.DataCheckHook"),
        dict(type="mmlisa.CheckpointGuardHook", min_matched=min_matched, same_shapes=same_shapes),
        dict(type="mmlisa.ChecksumHook"),
        dict(type="mmlisa.InterruptHook"),
    ]
    ours = {hook["type"] for hook in added}  # a config that a training has dumped holds them already
    hooks = [h for h in cfg.get("custom_hooks") or () if not (isinstance(h, Mapping) and h.get("type") in ours)]
    # Configs name this hook for the libraries' tools. A config that replaces the list would train on with broken weights.
    finite = [] if any("FiniteLossHook" in str(hook) for hook in hooks) else [dict(type="mmlisa.FiniteLossHook")]
    cfg.custom_hooks = [*hooks, *finite, *added]
    seed_samples(cfg)
    default = dict(type="CheckpointHook", interval=1)  # MMEngine's
    hooks = {"checkpoint": default, **(cfg.get("default_hooks") or {})}
    if hooks["checkpoint"] and type_name(hooks["checkpoint"]) == "CheckpointHook":
        hooks["checkpoint"] = {**hooks["checkpoint"], "type": "mmlisa.CheckpointHook"}
    cfg.default_hooks = hooks
    loop = cfg.get("train_cfg")
    is_mmengines = loop is not None and ("type" not in loop or type_name(loop) == "EpochBasedTrainLoop")
    if is_mmengines and loop.get("by_epoch", True):
        loop.pop("by_epoch", None)
        loop.type = "mmlisa.EpochBasedTrainLoop"
    model = deepcopy(cfg.model)  # building removes entries from the config
    try:
        default = Runner if verbose else QuietRunner
        runner = RUNNERS.build(cfg) if "runner_type" in cfg else default.from_cfg(cfg)
    except (KeyError, ValueError) as error:
        if (unknown := explain_unknown_type(error)) is None:
            raise
        raise unknown from error
    built = runner.model.module if is_model_wrapper(runner.model) else runner.model
    if isinstance(built, torch.nn.Module):
        check_channels(getattr(built, "module", built), model.get("module", model))
    return runner


def _keep_config(cfg: Config) -> None:
    """Refuse a work dir that holds the config itself: MMEngine writes the whole config there under the same name."""
    source = Path(cfg.filename or "")
    target = Path(cfg.work_dir) / source.name
    if not target.is_file() or target.resolve() != source.resolve():
        return
    if "mmlisa.InterruptHook" not in source.read_text(encoding="utf-8"):  # the config of an earlier run has this hook
        raise ValueError(
            f"the work dir '{cfg.work_dir}' holds the config '{source.name}', which the whole config of the run would "
            f"overwrite; name another folder, such as --work-dir {target.with_suffix('')}"
        )


def _take_seed(cfg: Config) -> None:
    """Give a resumed training the seed of its checkpoint, if the config has none.

    MMEngine sets this seed as well, but only after it has built the samplers with a new one.
    """
    if not cfg.get("resume") or "://" in cfg.load_from or (cfg.get("randomness") or {}).get("seed") is not None:
        return
    checkpoint = outline(Path(cfg.load_from))
    meta = checkpoint.get("meta") if isinstance(checkpoint, dict) else None
    if isinstance(meta, dict) and isinstance(meta.get("seed"), int):
        cfg.randomness = {**(cfg.get("randomness") or {}), "seed": meta["seed"]}


def _prepare_cpu_processes(cfg: Config) -> None:
    """Set up several processes on CPUs; MMEngine's own initialisation and its default model wrapper need GPUs."""
    if cfg.get("launcher", "none") == "none" or get_device() != "cpu":
        return
    if not torch.distributed.is_initialized():
        if cfg.launcher != "pytorch":
            raise ValueError(
                f"--launcher '{cfg.launcher}': this machine has no GPU, and MMEngine starts such processes on GPUs only; start "
                "them with torchrun and --launcher pytorch"
            )
        torch.distributed.init_process_group("gloo")
    default = dict(
        type="MMDistributedDataParallel",
        broadcast_buffers=False,
        find_unused_parameters=cfg.get("find_unused_parameters", False),
    )
    cfg.model_wrapper_cfg = {**default, **(cfg.get("model_wrapper_cfg") or {}), "device_ids": None}


@contextmanager
def _ending_together(runner: Runner) -> Iterator[None]:
    """On exit, wait for the other processes of a launcher and destroy the process group.

    The threads of a group must not outlive the interpreter: PyTorch aborts a process if such a thread frees a tensor while the
    interpreter shuts down (pytorch/pytorch#190489). They end with the last reference to the group. DistributedDataParallel holds
    one, so the runner keeps the model without its wrapper.
    """
    stopped = None
    try:
        yield
    except SystemExit as error:  # of InterruptHook, in all processes
        stopped = error
    if torch.distributed.is_initialized():
        barrier()
        if is_model_wrapper(runner.model):
            runner.model = runner.model.module
        gc.collect()
        torch.distributed.destroy_process_group()
    if stopped:
        raise stopped


def test(runner: Runner) -> dict[str, float]:
    """Test, and return the metrics. The processes of a launcher end their group together."""
    with _ending_together(runner):
        return runner.test()


def train(runner: Runner) -> None:
    """Train. The curves are drawn also if the training fails. The processes of a launcher end their group together.

    Raises:
        ChildProcessError: a process that loads data was killed.
    """
    interrupts = [hook for hook in runner.hooks if isinstance(hook, InterruptHook)]
    try:
        with _ending_together(runner):
            runner.train()
    except (RuntimeError, OSError, FloatingPointError) as error:
        runner.call_hook("draw_curves")  # of TrainingCurvesHook
        if "DataLoader worker (pid" not in str(error):  # errors inside of a worker name it in another way
            raise
        for hook in interrupts:  # a scheduler sends SIGTERM to the workers, too
            if hook.signals.number and not hook.signals.busy:
                hook.stop(runner, runner.iter)
        last = runner.message_hub.runtime_info.get("last_ckpt")
        raise ChildProcessError(
            f"a process that loads data was killed ({str(error).splitlines()[0]}). Most often the memory is full: lower "
            "train_dataloader.num_workers, or enlarge the shared memory. "
            + (f"--resume continues from {last}" if last else "No checkpoint was saved yet")
        ) from error
    finally:
        for hook in interrupts:
            hook.signals.restore()
