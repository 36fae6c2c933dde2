"""SIGTERM and Ctrl-C end a training with a checkpoint."""

import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from mmengine.dist import all_reduce, get_world_size, is_main_process
from mmengine.hooks import EMAHook, Hook
from mmengine.runner import Runner

from mmlisa.registry import HOOKS

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@HOOKS.register_module()
class InterruptHook(Hook):
    """On SIGTERM or SIGINT, saves a checkpoint of the last finished iteration and draws the curves.

    The iteration under way is finished first. The process exits with 143 or 130, as the shell reports a process that the
    signal ended; ``--resume`` continues from the checkpoint. A second signal exits at once. With several processes, all stop
    after the same iteration, whichever got the signal.
    """

    # After all hooks that belong to an iteration.
    priority = "LOWEST"

    def __init__(self) -> None:
        self.signal = 0
        self.busy = False  # in the middle of an iteration, whose weights are not to be saved
        self._process = os.getpid()
        self._handlers: dict[int, Any] = {}

    def before_train(self, runner: Runner) -> None:
        try:
            self._handlers = {number: signal.signal(number, self._handle) for number in _SIGNALS}
        except ValueError:  # not the main thread: whoever started it handles its signals
            self._handlers = {}

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        self.busy = True

    def after_train(self, runner: Runner) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def after_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: dict[str, Any] | None = None
    ) -> None:
        self.busy = False
        if self._requested():
            self.stop(runner, runner.iter + 1)

    def after_val_iter(
        self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: Any | None = None
    ) -> None:
        if self._handlers and self._requested():
            for hook in runner.hooks:
                if isinstance(hook, EMAHook):
                    hook.after_val_epoch(runner)  # puts the trained weights back
            self.stop(runner, runner.iter)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # a loader's worker, forked with our handlers
            return
        if self.signal:
            os._exit(128 + number)
        self.signal = number
        name = signal.Signals(number).name
        sys.stderr.write(f"{name}: a checkpoint is saved after this iteration; a second signal exits at once\n")

    def _requested(self) -> bool:
        if get_world_size() > 1:
            device = "cuda" if torch.cuda.is_available() else "cpu"
            number = torch.tensor(self.signal, device=device)
            all_reduce(number, "max")
            self.signal = int(number)
        return self.signal != 0

    def stop(self, runner: Runner, iteration: int) -> None:
        """Saves the state after ``iteration`` iterations and ends the process."""
        path = Path(runner.work_dir) / f"iter_{iteration}.pth"
        info = runner.message_hub.runtime_info
        if info.get("last_ckpt") != str(path):  # else this very iteration was saved by its schedule
            info["last_ckpt"] = str(path)
            runner.save_checkpoint(
                str(path.parent),
                path.name,
                meta=dict(epoch=runner.epoch, iter=iteration),
                by_epoch=False,
                backend_args={"backend": "mmlisa.atomic"},
            )
        if is_main_process():
            (path.parent / "last_checkpoint").write_text(str(path))
        runner.call_hook("draw_curves")  # of TrainingCurvesHook
        runner.logger.warning(f"interrupted after iteration {iteration}: {path} is saved, --resume continues from it")
        self.after_train(runner)
        sys.exit(128 + self.signal)
