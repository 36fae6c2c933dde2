"""Hooks that draw: the curves of a training, and predictions while a model is evaluated."""

from collections.abc import Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any

import mmcv
import numpy as np
from mmengine.dist import is_main_process, master_only
from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmlisa.registry import HOOKS

from .curves import draw_curves
from .overlays import Classes, draw_prediction, free_path, has_truth

Batch = Mapping[str, Any] | None


@HOOKS.register_module()
class TrainingCurvesHook(Hook):
    """Draws loss, learning rate and validation metrics over the whole training, resumed parts included.

    Writes ``curves.png`` beside the log: after each validation, at the end of the training, and, in mmlisa's tools, when it
    fails or is interrupted.
    """

    priority = "LOWEST"

    def after_val_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        history = list(runner.message_hub.runtime_info.get("metric_history", []))
        scalars = {name: float(value) for name, value in (metrics or {}).items() if isinstance(value, Real)}
        history.append({"iteration": runner.iter, **scalars})
        # Kept in the message hub, so that it is in the checkpoints and a resumed run goes on with it.
        runner.message_hub.update_info("metric_history", history)
        self.draw_curves(runner)

    def after_train(self, runner: Runner) -> None:
        self.draw_curves(runner)

    @master_only
    def draw_curves(self, runner: Runner) -> None:
        """Draws what was logged so far; a picture that cannot be written is no reason to end a training."""
        curves = {
            name.removeprefix("train/"): list(enumerate(history.data[0].tolist(), 1))
            for name, history in runner.message_hub.log_scalars.items()
            if name == "train/lr" or (name.startswith("train/") and "loss" in name)
        }
        for entry in runner.message_hub.runtime_info.get("metric_history", []):
            for name in entry.keys() - {"iteration"}:
                curves.setdefault(name, []).append((entry["iteration"], entry[name]))
        try:
            draw_curves({"": curves}, Path(runner.log_dir) / "curves.png")
        except OSError as error:
            runner.logger.warning(f"curves.png could not be written: {error}")


@HOOKS.register_module()
class OverlayHook(Hook):
    """Draws predictions, beside the annotations, while a detector, segmentor or classifier is validated or tested.

    In validation pictures go to the visualizer's backends: ``vis_data/vis_image/<image>_<iteration>.png``, or the page of
    TensorBoard or W&B. In a test they go into a folder. How they are drawn: :mod:`mmlisa.visualization.overlays`.

    Args:
        interval: one of this many images of the validation set is drawn; of a test set all are.
        draw: whether to draw at all.
        score_thr: objects below it are not drawn.
        test_out_dir: the folder of a test's pictures; None for none.
    """

    priority = "NORMAL"

    def __init__(
        self, interval: int = 50, draw: bool = True, score_thr: float = 0.3, test_out_dir: str | None = None
    ) -> None:
        self.interval, self.draw, self.score_thr, self.test_out_dir = interval, draw, score_thr, test_out_dir
        self._seen = 0
        self._written: set[Path] = set()

    def before_val_epoch(self, runner: Runner) -> None:
        self._seen = 0

    def after_val_iter(
        self, runner: Runner, batch_idx: int, data_batch: Batch = None, outputs: Sequence[Any] | None = None
    ) -> None:
        for inputs, sample in zip(_inputs(data_batch), outputs, strict=True):
            if self.draw and is_main_process() and self._seen % self.interval == 0:
                drawing = self._drawing(runner.val_dataloader, inputs, sample)
                runner.visualizer.add_image(Path(sample.img_path).stem, drawing, step=runner.iter)
            self._seen += 1

    def after_test_iter(
        self, runner: Runner, batch_idx: int, data_batch: Batch = None, outputs: Sequence[Any] | None = None
    ) -> None:
        if not self.draw or self.test_out_dir is None:
            return
        for inputs, sample in zip(_inputs(data_batch), outputs, strict=True):
            target = free_path(Path(self.test_out_dir, f"{Path(sample.img_path).stem}.png"), self._written)
            mmcv.imwrite(self._drawing(runner.test_dataloader, inputs, sample)[..., ::-1], str(target))

    def picture(self, inputs: Any, sample: Any) -> np.ndarray:
        """What a prediction is drawn on, ``[H, W, 3]`` (RGB): the image file, whose size the annotations have."""
        return mmcv.imread(sample.img_path, channel_order="rgb")

    def _drawing(self, loader: Any, inputs: Any, sample: Any) -> np.ndarray:
        return draw_prediction(
            self.picture(inputs, sample),
            sample.cpu(),
            Classes(loader.dataset.metainfo),
            score_threshold=self.score_thr,
            with_truth=has_truth(sample),
        )


def _inputs(batch: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> Any:
    """Of a batch; under test-time augmentation, of its first view."""
    return (batch if isinstance(batch, Mapping) else batch[0])["inputs"]
