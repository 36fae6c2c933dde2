"""Hooks that draw the curves of a training, and predictions during validation and tests."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import mmcv
import numpy as np
from mmengine.dist import is_main_process, master_only
from mmengine.hooks import Hook
from mmengine.runner import Runner
from torch import Tensor

from mmlisa.classes import Classes
from mmlisa.registry import HOOKS

from .curves import draw_curves, read_curves
from .overlays import draw_prediction, free_path, has_truth
from .samples import contact_sheet

Batch = Mapping[str, Any] | Sequence[Mapping[str, Any]]


@HOOKS.register_module()
class TrainingCurvesHook(Hook):
    """Draw loss, learning rate and validation metrics over the whole training, resumed parts included.

    The hook reads the logs of the work dir, and writes ``curves.png`` beside the newest one after each validation and at the end
    of the training. If that fails, it logs a warning, and the training continues.
    """

    priority = "LOW"  # after MMEngine's LoggerHook, which writes the log

    @master_only
    def after_val_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        try:
            draw_curves(read_curves(runner.work_dir), Path(runner.log_dir) / "curves.png")
        except OSError as error:
            runner.logger.warning(f"curves.png could not be written: {error}")

    def after_train(self, runner: Runner) -> None:
        self.after_val_epoch(runner)


@HOOKS.register_module()
class OverlayHook(Hook):
    """Draw predictions beside the annotations while a detector, segmentor or classifier is validated or tested.

    In validation, the pictures go to the backends of the visualizer: files ``vis_data/vis_image/<image>_<iteration>.png``, or the
    page of TensorBoard or W&B. In a test, they go into a folder. :mod:`mmlisa.visualization.overlays` draws them. A video is
    drawn as the contact sheet of its clips.

    Args:
        interval: draw every this many-th image of the validation set; a test draws all images.
        score_thr: lowest score of an object that is drawn.
        test_out_dir: folder of the pictures of a test; None draws none.
    """

    priority = "NORMAL"

    def __init__(self, interval: int = 50, score_thr: float = 0.3, test_out_dir: str | None = None) -> None:
        self.interval, self.score_thr, self.test_out_dir = interval, score_thr, test_out_dir
        self._seen = 0
        self._taken: set[Path] = set()

    def before_val_epoch(self, runner: Runner) -> None:
        self._seen = 0
        self._taken.clear()

    def after_val_iter(self, runner: Runner, batch_idx: int, data_batch: Batch, outputs: Sequence[Any]) -> None:
        for inputs, sample in zip(_inputs(data_batch), outputs, strict=True):
            if is_main_process() and self._seen % self.interval == 0:
                name = free_path(Path(f"{Path(sample.img_path).stem}.png"), self._taken).stem
                runner.visualizer.add_image(name, self._drawing(runner.val_dataloader, inputs, sample), runner.iter)
            self._seen += 1

    def after_test_iter(self, runner: Runner, batch_idx: int, data_batch: Batch, outputs: Sequence[Any]) -> None:
        if self.test_out_dir is None:
            return
        for inputs, sample in zip(_inputs(data_batch), outputs, strict=True):
            target = free_path(Path(self.test_out_dir, f"{Path(sample.img_path).stem}.png"), self._taken)
            mmcv.imwrite(self._drawing(runner.test_dataloader, inputs, sample)[..., ::-1], str(target))

    def _drawing(self, loader: Any, inputs: Tensor, sample: Any) -> np.ndarray:
        """Draw on the clips of a video, or on the image file, whose size the annotations have."""
        picture = contact_sheet(inputs) if inputs.ndim == 5 else mmcv.imread(sample.img_path, channel_order="rgb")
        options = dict(score_threshold=self.score_thr, with_truth=has_truth(sample))
        return draw_prediction(picture, sample.cpu(), Classes(loader.dataset.metainfo), **options)


def _inputs(batch: Batch) -> Any:
    """Return the inputs of a batch, or of its first view under test-time augmentation."""
    return (batch if isinstance(batch, Mapping) else batch[0])["inputs"]
