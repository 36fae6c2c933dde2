"""The schedule of a resumed training."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from mmengine.hooks import Hook
from mmengine.optim import OptimWrapper
from mmengine.runner import Runner

from mmlisa.registry import HOOKS

# The entries of a scheduler's state that are not settings.
_PROGRESS = {"last_step", "_global_step", "_last_value", "verbose"}


@HOOKS.register_module()
class ScheduleHook(Hook):
    """Resume a training with the schedule of the config, if it differs from that of the checkpoint.

    MMEngine restores the checkpoint's schedule, so that a finished training that is resumed for longer keeps its last learning
    rate. This hook steps the schedulers of the config up to the iteration of the checkpoint; the settings of the optimizer are
    the config's, too. MMEngine handles trainings with several optimizers, and schedulers that follow a metric.
    """

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        ours, saved, optimizer = (
            runner.param_schedulers,
            checkpoint.get("param_schedulers"),
            checkpoint.get("optimizer"),
        )
        built = isinstance(runner.optim_wrapper, OptimWrapper) and isinstance(
            ours, list
        )  # a dict for several optimizers
        if not (runner._resume and built and ours and saved and optimizer):
            return
        states = [scheduler.state_dict() for scheduler in ours]
        if _settings(states) == _settings(saved) or any(getattr(each, "need_val_args", False) for each in ours):
            return
        iterations, epochs = (checkpoint["meta"][key] for key in ("iter", "epoch"))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Detected call of `scheduler.step", UserWarning)  # before the optimizer's
            for done in range(iterations):
                ends_epoch = (done + 1) * epochs // iterations > done * epochs // iterations
                for scheduler in ours:
                    if ends_epoch or not scheduler.by_epoch:
                        scheduler.step()
        checkpoint["param_schedulers"] = [scheduler.state_dict() for scheduler in ours]
        rates = []
        for new, old in zip(_groups(runner.optim_wrapper.state_dict()), _groups(optimizer), strict=False):
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
    last = states[-1]
    return f"{'epoch' if last['by_epoch'] else 'iteration'} {last['end']}"
