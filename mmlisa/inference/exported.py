"""Exported files as the models of MMEngine's runners."""

from copy import deepcopy
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.config import Config
from mmengine.model import BaseModel
from mmengine.runner import Runner
from mmengine.structures import BaseDataElement

from mmlisa import runtime
from mmlisa.errors import UserError
from mmlisa.inference.predictor import fill_sample
from mmlisa.registry import MODELS
from mmlisa.runtime import Prediction
from mmlisa.training.checks import classes_of


@MODELS.register_module()
class ExportedModel(BaseModel):
    """An exported file as the model of an MMEngine runner, which evaluates it with a config's data and metrics.

    Images are read by the runtime from their files, not taken from the config's pipeline. Clips come from the pipeline, and a
    prediction is the mean of the probabilities of its views.

    Args:
        path: the file.
        tile, overlap: see :meth:`mmlisa.runtime.Model.predict`.
    """

    def __init__(self, path: str, tile: int | None = None, overlap: float | None = None) -> None:
        super().__init__()
        self.exported = runtime.load(path)
        self.tile, self.overlap = self.exported.metadata.get("tile", 0) if tile is None else tile, overlap

    def test_step(self, data: dict[str, Any]) -> list[BaseDataElement]:
        pairs = zip(data["inputs"], data["data_samples"], strict=True)
        return [fill_sample(sample, self._predict(inputs, sample)) for inputs, sample in pairs]

    def forward(self, inputs: Any, data_samples: Any = None, mode: str = "predict") -> list[BaseDataElement]:
        return self.test_step({"inputs": inputs, "data_samples": data_samples})

    def _predict(self, views: torch.Tensor, sample: BaseDataElement) -> Prediction:
        if self.exported.task != "video":
            return self.exported.predict(sample.img_path, 0.0, tile=self.tile, overlap=self.overlap)
        metadata = self.exported.metadata
        clips = views.numpy()  # [V, 3, T, H, W], BGR as OpenMMLab's loaders leave them
        if metadata["channels"] == "RGB":
            clips = np.ascontiguousarray(clips[:, ::-1])
        if not metadata["uint8"]:
            mean, std = (np.float32(metadata[key])[:, None, None, None] for key in ("mean", "std"))
            clips = (clips.astype(np.float32) - mean) / std
        (probabilities,) = self.exported.run(clips)
        return Prediction(probabilities=probabilities.mean(axis=0))


def check_exported_classes(runner: Runner) -> None:
    """Compare the classes of an exported file with those of the test data, in which its labels are counted.

    Raises:
        UserError: they differ; the message names the first label that stands for another class.
    """
    file, data = runner.model.exported.classes, classes_of(runner.test_dataloader)
    if not file or not data:
        runner.logger.warning(f"the classes of {'the test data' if file else 'the file'} are not known, nor compared")
        return
    for label, (exported, tested) in enumerate(zip_longest(file, data)):
        if exported != tested:
            raise UserError(
                f"{runner.model.exported.path!r}: label {label} is {exported!r} in the file and {tested!r} in the test data; "
                "set metainfo.classes of the test data set to the classes of the file"
            )


def exported_config(cfg: Config, path: str | Path, **tiles: Any) -> Config:
    """Return a copy of a config that tests an exported file in the place of its model; ``tiles``: :class:`ExportedModel`.

    The copy has a work dir of its own, because MMEngine's runner would overwrite the config in that of the training.
    """
    cfg = deepcopy(cfg)
    cfg.model = dict(type="mmlisa.ExportedModel", path=str(path), **tiles)
    cfg.load_from, cfg.resume = None, False
    cfg.data_preprocessor = None  # MMEngine's runner would pass it to the exported model
    cfg.work_dir = str(Path(cfg.get("work_dir") or "work_dirs") / Path(path).stem)
    return cfg
