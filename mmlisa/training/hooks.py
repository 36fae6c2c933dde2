"""Hooks that check the loss and the checkpoints of a training."""

from math import isfinite
from typing import Any

import torch
from mmengine.hooks import Hook
from mmengine.model import BaseTTAModel, is_model_wrapper
from mmengine.runner import Runner

from mmlisa.checkpoints import adapt_state_dict, check_match, state_dict_of
from mmlisa.errors import UserError
from mmlisa.registry import HOOKS

from .checks import check_shapes, saved_metainfo


@HOOKS.register_module()
class FiniteLossHook(Hook):
    """Stop at the first loss that is not finite, before a checkpoint of that iteration is written.

    Each process checks its own losses. Weights that hold NaN, because of gradients or of another process, are not saved.

    Raises:
        FloatingPointError: the message names the iteration, the losses and the last checkpoint.
    """

    priority = "VERY_HIGH"

    def after_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: dict[str, Any] | None = None
    ) -> None:
        values = {
            name: float(torch.as_tensor(loss).detach()) for name, loss in (outputs or {}).items() if "loss" in name
        }
        if not all(map(isfinite, values.values())):
            raise FloatingPointError(
                f"iteration {runner.iter + 1}: {values}. {_last(runner)}. Usual remedies are a lower learning rate, a longer "
                "warm-up, and optim_wrapper.clip_grad"
            )

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        broken = [
            name
            for name, each in checkpoint["state_dict"].items()
            if isinstance(each, torch.Tensor) and each.is_floating_point() and each.isnan().any()
        ]
        if broken:
            raise FloatingPointError(f"iteration {runner.iter + 1}: {broken[0]} holds NaN. {_last(runner)}")


def _last(runner: Runner) -> str:
    last = runner.message_hub.runtime_info.get("last_ckpt")
    return f"The last checkpoint is {last}" if last else "No checkpoint was saved yet"


@HOOKS.register_module()
class CheckpointGuardHook(Hook):
    """Report how much of the model a loaded checkpoint holds, and refuse a checkpoint that does not fit.

    Args:
        min_matched: share of the model's entries that must match in name and shape, from 0 to 1.
        same_shapes: refuse a checkpoint with any entry of another shape; otherwise only when resuming.

    Raises:
        UserError: the checkpoint holds less, entries of other shapes, values that are not weights, or the classes of the
            data in another order.
    """

    priority = "VERY_HIGH"  # before the hooks that load averages from the weights

    def __init__(self, min_matched: float, same_shapes: bool = False) -> None:
        self.min_matched, self.same_shapes = min_matched, same_shapes

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        model = runner.model.module if is_model_wrapper(runner.model) else runner.model
        model = model.module if isinstance(model, BaseTTAModel) else model
        filename = str(runner._load_from)
        # Adapted once; the runner loads the result.
        state = checkpoint["state_dict"] = adapt_state_dict(model, state_dict_of(checkpoint, filename))
        if self.same_shapes or runner._resume:
            check_shapes(model, checkpoint, filename)
            _check_order(runner, checkpoint, filename)
        check_match(model, state, filename, self.min_matched)


def _check_order(runner: Runner, checkpoint: dict[str, Any], filename: str) -> None:
    saved = saved_metainfo(checkpoint).get("classes") or ()
    ours = classes_of(runner.train_dataloader if runner._resume else runner.test_dataloader) or ()
    if sorted(ours) == sorted(saved) and list(ours) != list(saved):  # a label of the model means another class
        raise UserError(
            f"checkpoint '{filename}' has the classes of the data in another order: set metainfo.classes of the data set to "
            f"{list(saved)}"
        )


def classes_of(loader: Any) -> Any:
    """Return the class names of a data loader's data set; None if it has none, or joins data sets that differ."""
    metainfo = getattr(loader.dataset, "metainfo", None)
    return metainfo.get("classes") if isinstance(metainfo, dict) else None
