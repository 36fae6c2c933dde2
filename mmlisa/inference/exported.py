"""Exported files as the models of MMEngine's runners."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.config import Config
from mmengine.model import BaseModel
from mmengine.structures import BaseDataElement

from mmlisa import runtime
from mmlisa.inference.predictor import fill_sample
from mmlisa.registry import MODELS
from mmlisa.runtime import Prediction


@MODELS.register_module()
class ExportedModel(BaseModel):
    """An exported file as the model of an MMEngine runner, which evaluates it with a config's data and metrics.

    Images are read by the runtime from their files, not taken from the config's pipeline. Clips come from the pipeline, and a
    prediction is the mean of the probabilities of its views.
    """

    def __init__(self, path: str, backend: str = "auto") -> None:
        super().__init__()
        self.exported = runtime.load(path, backend=backend)

    def test_step(self, data: dict[str, Any]) -> list[BaseDataElement]:
        return [self._predict(*pair) for pair in zip(data["inputs"], data["data_samples"], strict=True)]

    def forward(self, inputs: Any, data_samples: Any = None, mode: str = "predict") -> list[BaseDataElement]:
        return self.test_step({"inputs": inputs, "data_samples": data_samples})

    def _predict(self, views: torch.Tensor, sample: BaseDataElement) -> BaseDataElement:
        if self.exported.task != "video":
            return fill_sample(sample, self.exported.predict(sample.img_path, 0.0))
        metadata = self.exported.metadata
        clips = views.numpy()  # [V, 3, T, H, W], BGR as OpenMMLab's loaders leave them
        if metadata["channels"] == "RGB":
            clips = np.ascontiguousarray(clips[:, ::-1])
        if not metadata["uint8"]:
            mean, std = (np.float32(metadata[key])[:, None, None, None] for key in ("mean", "std"))
            clips = (clips.astype(np.float32) - mean) / std
        (probabilities,) = self.exported.run(clips)
        return fill_sample(sample, Prediction(probabilities=probabilities.mean(axis=0)))


def exported_config(cfg: Config, path: str | Path, backend: str = "auto") -> Config:
    """Return a copy of a config that tests an exported file in the place of its model.

    The copy has a work dir of its own, a subfolder of the config's with the name of the file: MMEngine's runner writes its config
    there. In the training's folder it would overwrite the config of the training.
    """
    cfg = deepcopy(cfg)
    cfg.model = dict(type="mmlisa.ExportedModel", path=str(path), backend=backend)
    cfg.load_from, cfg.resume = None, False
    cfg.data_preprocessor = None  # MMEngine's runner would pass it to the exported model
    cfg.work_dir = str(Path(cfg.get("work_dir") or "work_dirs") / Path(path).stem)
    return cfg
