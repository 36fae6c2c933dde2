"""Predictions of trained models and exported files on images and videos, drawn and as data."""

from collections import Counter
from collections.abc import Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import mmcv
import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import Compose, pseudo_collate
from mmengine.device import get_device
from mmengine.model import BaseModel
from mmengine.structures import BaseDataElement, InstanceData, PixelData
from tqdm import tqdm

from mmlisa.checkpoints import load_weights
from mmlisa.deploy import runtime
from mmlisa.deploy.cpu import optimize_for_cpu
from mmlisa.deploy.runtime import IMAGE_SUFFIXES, VIDEO_SUFFIXES, Prediction
from mmlisa.registry import MODELS
from mmlisa.training.building import build_model
from mmlisa.training.checks import check_channels, check_shapes, saved_metainfo
from mmlisa.training.config import find_metainfo, find_test_pipeline, innermost_dataset, type_name
from mmlisa.visualization.overlays import Classes, draw_prediction, free_path, write_video


class Result(NamedTuple):
    """Result for one input.

    Attributes:
        source: the input.
        target: the file written; None if the input could not be read.
        summary: a line with the prediction, or with the reason why the input could not be read.
        result: the prediction as plain data, see :func:`describe`; a list of a video's frames.
    """

    source: Path
    target: Path | None
    summary: str
    result: dict[str, Any] | list[dict[str, Any]] | None = None


class Predictor:
    """A trained model with the interface of an exported file (:class:`mmlisa.deploy.runtime.Model`).

    Args:
        cfg: a whole config.
        checkpoint: file with the weights; any entry of another shape than the model's is refused.
        device: where the model runs; None for a GPU where there is one.
        min_matched: share of the model's entries the checkpoint must hold.

    Attributes:
        classes: names of the classes.
        metainfo: ``classes``, and ``palette`` if the data set has one.
        takes_clips: the model classifies videos.

    Raises:
        FileNotFoundError, ValueError: a checkpoint that is missing, damaged or of another model; no test pipeline.
    """

    def __init__(self, cfg: Config, checkpoint: str, *, device: str | None = None, min_matched: float = 0.9) -> None:
        self.model = build_model(cfg)
        check_channels(self.model, cfg.model)
        loaded = load_weights(self.model, checkpoint, min_matched)
        check_shapes(self.model, loaded, checkpoint)
        device = torch.device(device or get_device())
        self.model.to(device).eval()
        self.device = device.type
        if self.device == "cpu":
            optimize_for_cpu(self.model)

        self.metainfo = saved_metainfo(loaded) or find_metainfo(innermost_dataset(cfg, "test"))
        self.classes = list(Classes(self.metainfo).names)
        load, *steps = (step for step in find_test_pipeline(cfg) if "LoadAnnotations" not in type_name(step))
        self.load, self.pipeline = Compose([load]), Compose(steps)
        self.takes_clips = type_name(load).endswith("LoadClips")
        self.is_grey = str(load.get("color_type")).startswith("grayscale")

    def read(self, image: Any) -> dict[str, Any]:
        """Return the input of the model for a file, a Pillow image or an array ``[H, W, 3]`` (RGB, uint8)."""
        if isinstance(image, str | Path):
            loaded = self.load({"img_path": str(image), "img_id": 0})
        elif self.takes_clips:
            raise ValueError("image is not a file name: this model classifies videos")
        else:
            image = np.ascontiguousarray(runtime.read_image(image)[..., ::-1])
            image = mmcv.bgr2gray(image) if self.is_grey else image
            size = image.shape[:2]
            loaded = dict(img=image, img_path="picture", img_id=0, img_shape=size, ori_shape=size)
        return pseudo_collate([self.pipeline(loaded)])

    def predict(self, image: Any, score_threshold: float | None = None) -> Prediction:
        """Predict on what :meth:`read` takes; detections below ``score_threshold`` (None: 0.3) are dropped."""
        with torch.no_grad():
            sample = self.model.test_step(self.read(image))[0].cpu()
        return read_sample(sample, 0.3 if score_threshold is None else score_threshold)


def fill_sample(sample: BaseDataElement, found: Prediction) -> BaseDataElement:
    """Write a prediction into a data sample, under OpenMMLab's names."""
    if found.boxes is not None:
        fields = dict(bboxes=found.boxes, scores=found.scores, labels=found.labels, masks=found.masks)
        fields = {
            name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value  # masks of tiles are run lengths
            for name, value in fields.items()
            if value is not None
        }
        sample.pred_instances = InstanceData(**fields)
    elif found.segmentation is not None:
        sample.pred_sem_seg = PixelData(data=torch.from_numpy(found.segmentation)[None])
    else:
        sample.pred_score = torch.from_numpy(found.probabilities)
        sample.pred_label = sample.pred_score.argmax(0, keepdim=True)
    return sample


def read_sample(sample: BaseDataElement, threshold: float = 0.0) -> Prediction:
    """Return the prediction in a data sample: detections whose scores reach ``threshold``, the best first."""
    if "pred_instances" in sample:
        found = sample.pred_instances
        found = found[found.scores >= threshold]
        found = found[found.scores.argsort(descending=True, stable=True)].numpy()
        return Prediction(found.bboxes, found.scores, found.labels, found.get("masks"))
    if "pred_sem_seg" in sample:
        return Prediction(segmentation=sample.pred_sem_seg.data[0].numpy())
    return Prediction(probabilities=sample.pred_score.numpy())


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


def describe(found: Prediction, classes: Classes) -> dict[str, Any]:
    """Return a prediction as plain data, in pixels of the input.

    Returns:
        One of these, the best first::

            {"instances": [{"category": "cat", "category_id": 0, "score": 0.98, "bbox": [x, y, width, height],
                            "segmentation": COCO's run-length encoding, where there are masks}, …]}
            {"segments": [{"category": "cat", "category_id": 0, "share": 0.25 of the pixels}, …]}
            {"scores": [{"category": "cat", "category_id": 0, "score": 0.98}, …]}, of at most five classes
    """

    def named(label: int, **entries: Any) -> dict[str, Any]:
        return {"category": classes.name(int(label)), "category_id": int(label), **entries}

    if found.boxes is not None:
        instances = [
            named(label, score=round(float(score), 4), bbox=[round(v, 2) for v in (x0, y0, x1 - x0, y1 - y0)])
            for label, score, (x0, y0, x1, y1) in zip(found.labels, found.scores, found.boxes.tolist(), strict=True)
        ]
        for instance, mask in zip(instances, found.masks if found.masks is not None else ()):  # noqa: B905
            instance["segmentation"] = (
                mask if isinstance(mask, dict) else runtime.encode_mask([(0, 0, mask)], mask.shape)
            )
        return {"instances": instances}
    if found.segmentation is not None:
        labels, counts = np.unique(found.segmentation, return_counts=True)
        order = np.argsort(-counts, kind="stable")
        return {"segments": [named(labels[i], share=round(float(counts[i] / counts.sum()), 4)) for i in order]}
    best = np.argsort(-found.probabilities, kind="stable")[:5]
    return {"scores": [named(i, score=round(float(found.probabilities[i]), 4)) for i in best]}


def summarise(result: dict[str, Any]) -> str:
    """Return one line for the result of :func:`describe`: objects of each class, shares of the pixels, or the class."""
    if "instances" in result:
        counts = Counter(instance["category"] for instance in result["instances"])
        return ", ".join(f"{n} {name}" for name, n in counts.most_common()) or "nothing found"
    if "segments" in result:
        return ", ".join(f"{segment['category']} {segment['share']:.0%}" for segment in result["segments"][:8])
    best = result["scores"][0]
    return f"{best['category']} ({best['score']:.2f})"


def predict_pictures(
    model: Predictor | runtime.Model,
    images: Sequence[str],
    out_dir: Path,
    score_threshold: float = 0.3,
    **options: Any,
) -> Iterator[Result]:
    """Write each input with its boxes, masks, labels and scores (or its segmentation, or its class) into ``out_dir``.

    Args:
        model: a model; see :func:`mmlisa.load`.
        images: images, videos, or folders of them; for a video classifier, videos, folders of videos, and folders of a video's
            frames.
        out_dir: gets ``<stem>.png`` per image and ``<stem>.mp4`` per video; inputs of one stem are numbered.
        score_threshold: lowest score of a detection.
        **options: more for ``model.predict``, such as ``tile`` of an exported file.

    Yields:
        One :class:`Result` per input, as it is done. An input that cannot be read does not end the rest.

    Raises:
        FileNotFoundError: a folder without images.
    """
    classes = Classes(getattr(model, "metainfo", {"classes": model.classes}))
    takes_clips = getattr(model, "takes_clips", False)
    paths = list(dict.fromkeys(path for name in images for path in _expand(Path(name), takes_clips)))
    out_dir.mkdir(parents=True, exist_ok=True)
    taken = {path.resolve() for path in paths}  # a picture never replaces an input

    def draw(image: Any, picture: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
        found = model.predict(image, score_threshold, **options)
        drawing = draw_prediction(picture, fill_sample(BaseDataElement(), found), classes, score_threshold=0.0)
        return drawing, describe(found, classes)

    for path in tqdm(paths, "predictions", leave=False, disable=None):
        is_video = path.suffix.lower() in VIDEO_SUFFIXES and not takes_clips
        stem = path.name if path.is_dir() else path.stem
        target = free_path(out_dir / f"{stem}{'.mp4' if is_video else '.png'}", taken)
        try:
            if is_video:
                results = _draw_video(draw, path, target)
                yield Result(path, target, f"{len(results)} frames; in the last: {summarise(results[-1])}", results)
                continue
            if takes_clips:
                from mmlisa.video import contact_sheet  # needs mmpretrain

                picture = contact_sheet(model.read(path)["inputs"][0])
            else:
                picture = runtime.read_image(path)
            drawing, result = draw(path, picture)
            mmcv.imwrite(drawing[..., ::-1], str(target))
            yield Result(path, target, summarise(result), result)
        except (ValueError, OSError, RuntimeError, ArithmeticError, IndexError, AssertionError, cv2.error) as error:
            # Pipelines and models fail in these ways, for example on an image two pixels wide.
            yield Result(path, None, f"{path} cannot be processed: {type(error).__name__}: {error}")


def _draw_video(draw: Any, path: Path, target: Path) -> list[dict[str, Any]]:
    """Write a video frame by frame, and return the results of the frames."""
    video = mmcv.VideoReader(str(path))
    results = []

    def drawings() -> Iterator[np.ndarray]:
        for frame in tqdm(video, path.name, len(video), leave=False, unit="frame", disable=None):
            picture = np.ascontiguousarray(frame[..., ::-1])
            drawing, result = draw(picture, picture)
            results.append(result)
            yield drawing

    write_video(target, drawings(), video.fps or 25.0)
    if not results:
        raise ValueError(f"no frame can be read; `ffmpeg -i {path} frames/%05d.jpg` makes images")
    return results


def _expand(path: Path, takes_clips: bool) -> list[Path]:
    """Return the inputs in a folder and its subfolders, without hidden files; any other path is an input."""
    suffixes = VIDEO_SUFFIXES if takes_clips else (*IMAGE_SUFFIXES, *VIDEO_SUFFIXES)
    if not path.is_dir():
        return [path]
    found = sorted(p for p in path.rglob("[!.]*") if p.suffix.lower() in suffixes)
    if not found and not takes_clips:
        raise FileNotFoundError(f"folder {path} holds no image ({', '.join(suffixes)})")
    return found or [path]  # the folder holds the frames of a video
