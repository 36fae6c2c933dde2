"""Trainings that go on in the middle of an epoch, and with another schedule."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from mmengine import runner as mmengine
from mmengine.hooks import Hook
from mmengine.optim import OptimWrapper

from mmlisa.registry import HOOKS, LOOPS

# The entries of a scheduler's state that are not settings.
_PROGRESS = {"last_step", "_global_step", "_last_value", "verbose"}


@LOOPS.register_module()
class EpochBasedTrainLoop(mmengine.EpochBasedTrainLoop):
    """MMEngine's loop, which also resumes from a checkpoint saved in the middle of an epoch.

    The resumed epoch has the batches that were left. They are drawn anew, because loading and skipping the earlier ones would
    take as long as they took to load.
    """

    def run_epoch(self) -> None:
        self.runner.call_hook("before_train_epoch")
        self.runner.model.train()
        length = len(self.dataloader)
        done = self._iter - self._epoch * length
        done = done if 0 <= done < length else 0  # the number of batches per epoch may have changed since
        for index, batch in zip(range(done, length), self.dataloader, strict=False):
            self.run_iter(index, batch)
        self.runner.call_hook("after_train_epoch")
        self._epoch += 1


@HOOKS.register_module()
class ScheduleHook(Hook):
    """Resume a training with the schedule of the config, if it differs from that of the checkpoint.

    MMEngine restores the checkpoint's schedule, so that a finished training that is resumed for longer keeps its last learning
    rate. This hook steps the schedulers of the config up to the iteration of the checkpoint; the settings of the optimizer are
    the config's, too. Trainings with several optimizers and schedulers that follow a metric are resumed as MMEngine does it.
    """

    def after_load_checkpoint(self, runner: mmengine.Runner, checkpoint: dict[str, Any]) -> None:
        ours, saved = runner.param_schedulers or [], checkpoint.get("param_schedulers") or []
        if not (runner._resume and isinstance(ours, list) and isinstance(runner.optim_wrapper, OptimWrapper)):
            return  # not a training, or one with several optimizers
        states = [scheduler.state_dict() for scheduler in ours]
        if _settings(states) == _settings(saved) or any(getattr(each, "need_val_args", False) for each in ours):
            return
        iterations, epochs = (checkpoint["meta"][key] for key in ("iter", "epoch"))
        length, by_epoch = len(runner.train_dataloader), isinstance(runner.train_loop, mmengine.EpochBasedTrainLoop)
        if by_epoch:  # the length of an epoch may have changed, too
            since_epoch = iterations - epochs * length
            iterations = epochs * length + (since_epoch if 0 <= since_epoch < length else 0)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Detected call of `scheduler.step", UserWarning)  # before the optimizer's
            for done in range(1, iterations + 1):
                for scheduler in ours:
                    if not scheduler.by_epoch or (by_epoch and done % length == 0):
                        scheduler.step()
        checkpoint["param_schedulers"] = [scheduler.state_dict() for scheduler in ours]
        rates = []
        for new, old in zip(_groups(runner.optim_wrapper.state_dict()), _groups(checkpoint["optimizer"]), strict=False):
            rates.append((old["lr"], new["lr"]))
            old.update({name: value for name, value in new.items() if name != "params"})
        runner.logger.warning(
            f"--resume: the schedule of the config, which ends at {_end(states)}, replaces that of the checkpoint, which ends at "
            f"{_end(saved)}; the learning rate is {rates[0][1]:.3g}, there {rates[0][0]:.3g}"
        )


def _settings(states: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in state.items() if name not in _PROGRESS} for state in states]


def _groups(optimizer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the parameter groups of an optimizer's state, and the settings that MMEngine keeps beside them."""
    return [*optimizer["param_groups"], *filter(None, [optimizer.get("base_param_settings")])]


def _end(states: Sequence[Mapping[str, Any]]) -> str:
    return f"{'epoch' if states[-1]['by_epoch'] else 'iteration'} {states[-1]['end']}" if states else "its first step"
