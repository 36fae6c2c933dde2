"""Hooks that check: a non-finite loss, data that do not fit the model, a checkpoint of another model."""

from typing import Any

import numpy as np
import torch
from mmengine.hooks import Hook
from mmengine.model import is_model_wrapper
from mmengine.runner import Runner

from mmlisa.checkpoints import adapt_state_dict, add_checksum, check_share, check_values, match_report
from mmlisa.checkpoints.loading import state_dict_of
from mmlisa.registry import HOOKS

from .checks import check_classes, check_first_image, check_schedule, check_shapes, shape_conflicts


@HOOKS.register_module()
class FiniteLossHook(Hook):
    """Stops the training at the first loss that is not finite, before a checkpoint of that iteration is written.

    Raises:
        FloatingPointError: names the iteration, the losses and where the last good checkpoint is.
    """

    priority = "VERY_HIGH"

    def after_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: dict[str, Any] | None = None
    ) -> None:
        losses = {
            name: float(torch.as_tensor(value).detach()) for name, value in (outputs or {}).items() if "loss" in name
        }
        broken = {name: value for name, value in losses.items() if not np.isfinite(value)}
        if broken:
            last = runner.message_hub.runtime_info.get("last_ckpt")
            raise FloatingPointError(
                f"iteration {runner.iter + 1}: {', '.join(f'{name} is {value}' for name, value in broken.items())} "
                f"(all losses: {losses}). Training stopped; the last good checkpoint is "
                f"{last or 'the one it started from, none was saved yet'}. What usually helps: a lower learning rate, a "
                "longer warm-up, optim_wrapper.clip_grad"
            )


@HOOKS.register_module()
class DataCheckHook(Hook):
    """What of a config can be checked only when its data have been read.

    Raises:
        ValueError: a head tells fewer classes apart than the data have; more are a warning.
        FileNotFoundError: the first image is missing.
    """

    priority = "VERY_HIGH"

    def before_train(self, runner: Runner) -> None:
        self._check(runner, "train")
        if runner.val_loop is not None:
            self._check(runner, "val")
        if "max_epochs" in (runner.cfg.get("train_cfg") or {}):  # how many iterations that is, the data say
            note = check_schedule({**runner.cfg, "train_cfg": dict(max_iters=runner.max_iters)})
            if note:
                runner.logger.warning(note)

    def before_test(self, runner: Runner) -> None:
        self._check(runner, "test")

    @staticmethod
    def _check(runner: Runner, split: str) -> None:
        dataset, setting = getattr(runner, f"{split}_dataloader").dataset, f"{split}_dataloader.dataset"
        model = runner.cfg.get("model") or {}
        note = check_classes(model.get("module", model), getattr(dataset, "metainfo", {}).get("classes"), setting)
        if note:
            runner.logger.warning(note)
        check_first_image(dataset, setting)


@HOOKS.register_module()
class CheckpointGuardHook(Hook):
    """Reports how much of the model a loaded checkpoint holds, and refuses one that does not fit.

    Checkpoints that are saved get a checksum of their tensors, which is verified whenever they are read.

    Args:
        min_matched: share of the model's entries that must match in name and shape, from 0 to 1.
        same_shapes: refuse a checkpoint with any entry of another shape; otherwise that is a warning, except when resuming.

    Raises:
        ValueError: the checkpoint holds less, entries of other shapes, or values that are no weights.
    """

    # After the hooks that change what is saved.
    priority = "LOWEST"

    def __init__(self, min_matched: float, same_shapes: bool = False) -> None:
        self.min_matched, self.same_shapes = min_matched, same_shapes

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        add_checksum(checkpoint)

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        model = runner.model.module if is_model_wrapper(runner.model) else runner.model
        # Test-time augmentation wraps the trained model once more.
        model = model.module if hasattr(model, "tta_cfg") or type(model).__name__.endswith("TTAModel") else model
        filename = str(runner._load_from)
        # Adapted here once; the runner loads the result.
        state = checkpoint["state_dict"] = adapt_state_dict(model, state_dict_of(checkpoint, filename))
        if self.same_shapes or runner._resume:
            check_shapes(model, checkpoint, filename)
        elif conflicts := shape_conflicts(model, checkpoint):
            runner.logger.warning(
                f"{filename} does not fill the whole model: {conflicts}. These entries keep their initial values"
            )
        check_share(*match_report(model, state), filename, self.min_matched)
        check_values(model.state_dict(), state, filename)
