"""Checkpoints with the interface of exported files, exported files in MMEngine's runners, predictions as data samples."""

from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import cv2
import mmcv
import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import Compose, pseudo_collate
from mmengine.device import get_device
from mmengine.model import BaseModel
from mmengine.runner import Runner
from mmengine.structures import BaseDataElement, InstanceData, PixelData

from mmlisa import runtime
from mmlisa.checkpoints import load_weights, saved_metainfo
from mmlisa.classes import Classes
from mmlisa.errors import UserError
from mmlisa.inference.faster import optimize_for_cpu, use_half
from mmlisa.registry import MODELS
from mmlisa.runtime import InputError, Prediction, read_image
from mmlisa.runtime.images import check_address, one_or_all, one_size_batches
from mmlisa.training.config import build_model, find_metainfo, find_test_pipeline, innermost_dataset, type_name
from mmlisa.training.inputs import warn_of_inputs
from mmlisa.training.runner import check_channels, classes_of, warn_of_names


class Predictor:
    """A trained model with the interface of :class:`mmlisa.runtime.Model`.

    Args:
        cfg: a whole config.
        checkpoint: file with all weights of the model; see :func:`mmlisa.checkpoints.judge`.
        device, dtype, faster: see :func:`mmlisa.load`.
        may_differ: parts or entries that need not be in the checkpoint.

    Attributes:
        classes: names of the classes.
        metainfo: ``classes``, and ``palette`` if the data set has one.
        takes_clips: the model classifies videos.

    Raises:
        FileNotFoundError, UserError: a checkpoint that is missing, damaged or of another model; no test pipeline; more names
            than a head has classes. Fewer names are a warning.
    """

    def __init__(
        self,
        cfg: Config,
        checkpoint: str,
        *,
        device: str | None = None,
        dtype: str | None = None,
        faster: bool = True,
        may_differ: Sequence[str] = (),
    ) -> None:
        self.model = build_model(cfg)
        check_channels(self.model, cfg.model)
        loaded = load_weights(self.model, checkpoint, may_differ)
        warn_of_inputs(loaded, cfg, checkpoint)
        device = torch.device(device or get_device())
        self.model.to(device).eval()
        if faster and device.type == "cpu":
            optimize_for_cpu(self.model)
        if dtype:
            use_half(self.model, dtype)
        saved = saved_metainfo(loaded)
        self.metainfo = saved or find_metainfo(innermost_dataset(cfg, "test"))
        self.classes = list(Classes(self.metainfo).names)
        warn_of_names(cfg.model, self.classes, saved)
        load, *steps = (step for step in find_test_pipeline(cfg) if "LoadAnnotations" not in type_name(step))
        self.load, self.pipeline = Compose([load]), Compose(steps)
        self.takes_clips = type_name(load).endswith("LoadClips")
        self.is_grey = str(load.get("color_type")).startswith("grayscale")

    def read(self, image: Any) -> dict[str, Any]:
        """Return the input of the model for an image, see :func:`mmlisa.runtime.read_image`; of a video classifier for a path.

        A path is read as the test pipeline says.
        """
        return pseudo_collate([self._prepare(image)])

    def _prepare(self, image: Any) -> dict[str, Any]:
        if self.takes_clips and not isinstance(image, str | Path):
            raise UserError("image is not a file name: this model classifies videos")
        if isinstance(image, str | Path):
            check_address(image)
            try:
                loaded = self.load({"img_path": str(image), "img_id": 0})
            except (AssertionError, OSError, cv2.error) as error:  # what the steps of the libraries raise
                raise InputError(f"image {str(image)!r} cannot be read: it is missing, damaged or no image") from error
        else:
            image = np.ascontiguousarray(read_image(image)[..., ::-1])
            image = mmcv.bgr2gray(image) if self.is_grey else image
            size = image.shape[:2]
            loaded = dict(img=image, img_path="picture", img_id=0, img_shape=size, ori_shape=size)
        return self.pipeline(loaded)

    def predict(
        self, image: Any, score_threshold: float | None = None, *, batch: int = 1
    ) -> Prediction | list[Prediction] | Iterator[Prediction]:
        """Predict on an image, on each of a list, or on each of an iterator: see :meth:`mmlisa.runtime.Model.predict`.

        Detections below ``score_threshold`` (None: 0.3) are dropped.
        """
        threshold = 0.3 if score_threshold is None else score_threshold
        return one_or_all(image, lambda images: self._predict_all(images, threshold, batch))

    def _predict_all(self, images: Iterable[Any], threshold: float, batch: int) -> Iterator[Prediction]:
        prepared = map(self._prepare, images)
        for chunk in one_size_batches(prepared, batch, lambda item: tuple(item["inputs"].shape)):
            with torch.no_grad():
                samples = self.model.test_step(pseudo_collate(chunk))
            for sample in samples:
                yield read_sample(sample.cpu(), threshold)


@MODELS.register_module()
class ExportedModel(BaseModel):
    """An exported file as the model of an MMEngine runner, which evaluates it with a config's data and metrics.

    Images are read by the runtime from their files, not taken from the config's pipeline. It refuses classifiers of clips.

    Args:
        path: the file.
        tile, overlap: see :meth:`mmlisa.runtime.Model.predict`.
    """

    def __init__(self, path: str, tile: int | None = None, overlap: float | None = None) -> None:
        super().__init__()
        self.exported = runtime.load(path)
        self.tile, self.overlap = self.exported.metadata.get("tile", 0) if tile is None else tile, overlap

    def test_step(self, data: dict[str, Any]) -> list[BaseDataElement]:
        predict = partial(self.exported.predict, score_threshold=0.0, tile=self.tile, overlap=self.overlap)
        return [fill_sample(sample, predict(sample.img_path)) for sample in data["data_samples"]]

    def forward(self, inputs: Any, data_samples: Any = None, mode: str = "predict") -> list[BaseDataElement]:
        return self.test_step({"inputs": inputs, "data_samples": data_samples})


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


def describe_reading(model: ExportedModel) -> str:
    """Return a sentence on how an exported file reads images, whatever the config says."""
    entries = model.exported.metadata
    steps = [f"{name} {options}" for name, options in entries["steps"]]
    used = f"steps {', '.join(steps) or 'none'}; mean {entries['mean']}, std {entries['std']}, {entries['channels']}"
    return f"{model.exported.path} reads images by its own pipeline, not by the config's: {used}"


def exported_config(cfg: Config, path: str | Path, **tiles: Any) -> Config:
    """Return a copy of a config that tests an exported file in the place of its model; ``tiles``: :class:`ExportedModel`.

    Its work dir is a folder of its own: MMEngine's runner would overwrite the config in that of the training.
    """
    cfg = deepcopy(cfg)
    cfg.model = dict(type="mmlisa.ExportedModel", path=str(path), **tiles)
    cfg.load_from, cfg.resume = None, False
    cfg.work_dir = str(Path(cfg.get("work_dir") or "work_dirs") / Path(path).stem)
    cfg.data_preprocessor = None  # MMEngine's runner would pass it to the exported model
    return cfg


def fill_sample(sample: BaseDataElement, prediction: Prediction) -> BaseDataElement:
    """Write a prediction into a data sample, under OpenMMLab's names."""
    if prediction.boxes is not None:
        instances = sample.pred_instances = InstanceData(bboxes=torch.from_numpy(prediction.boxes))
        for name in ("scores", "labels", "masks", "ids"):
            if (value := getattr(prediction, name)) is not None:
                is_array = isinstance(value, np.ndarray)  # masks of tiles are run lengths
                setattr(instances, name, torch.from_numpy(value) if is_array else value)
    elif prediction.segmentation is not None:
        sample.pred_sem_seg = PixelData(data=torch.from_numpy(prediction.segmentation)[None])
    else:
        sample.pred_score = torch.from_numpy(prediction.probabilities)
        sample.pred_label = sample.pred_score.argmax(0, keepdim=True)
    return sample


def read_sample(sample: BaseDataElement, threshold: float = 0.0) -> Prediction:
    """Return the prediction in a data sample: detections whose scores reach ``threshold``, the best first."""
    if "pred_instances" in sample:
        instances = sample.pred_instances
        instances = instances[instances.scores >= threshold]
        instances = instances[instances.scores.argsort(descending=True, stable=True)].numpy()
        return Prediction(instances.bboxes, instances.scores, instances.labels, instances.get("masks"))
    if "pred_sem_seg" in sample:
        return Prediction(segmentation=sample.pred_sem_seg.data[0].numpy())
    return Prediction(probabilities=sample.pred_score.numpy())
