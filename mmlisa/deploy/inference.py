"""Predictions on single pictures and videos, drawn and as data."""

from collections import Counter
from collections.abc import Iterator, Sequence
from copy import deepcopy
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import mmcv
import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import Compose, pseudo_collate
from mmengine.device import get_device
from mmengine.hooks import Hook
from mmengine.model import BaseModel
from mmengine.runner import Runner
from mmengine.structures import BaseDataElement, InstanceData, PixelData
from tqdm import tqdm

from mmlisa.checkpoints import load_weights
from mmlisa.datasets.folder import IMAGE_SUFFIXES
from mmlisa.deploy import runtime
from mmlisa.deploy.cpu import optimize_for_cpu
from mmlisa.registry import HOOKS, MODELS
from mmlisa.training.building import build_model
from mmlisa.training.checks import check_channels, check_shapes, saved_metainfo
from mmlisa.training.config import find_metainfo, find_test_pipeline, innermost_dataset, type_name
from mmlisa.visualization.overlays import Classes, draw_prediction, free_path, write_video

VIDEO_SUFFIXES = (".mp4", ".avi", ".mov", ".mkv", ".webm", ".m4v", ".mpg", ".mpeg")
_SHOWN = "[!.]*"  # files that are not hidden: macOS leaves a ._NAME.jpg that is not an image beside each NAME.jpg


class Prediction(NamedTuple):
    """Result of one input.

    Attributes:
        source: the input.
        target: the file written; None where the input could not be read.
        summary: a line that says what is in it, or why it could not be read.
        result: the same as plain data, see :meth:`Predictor.describe`; of a video a list, one entry per frame.
    """

    source: Path
    target: Path | None
    summary: str
    result: dict[str, Any] | list[dict[str, Any]] | None = None


def takes_clips(cfg: Config) -> bool:
    """Whether a config's model classifies videos, each of which is one input."""
    return type_name(find_test_pipeline(cfg)[0]).endswith("LoadClips")


class Predictor:
    """A model with its weights, its test pipeline and its classes.

    Args:
        cfg: a whole config.
        checkpoint: file with the weights; any entry of another shape than the model's is refused.
        score_threshold: detections below it are neither drawn nor counted.
        device: where the model runs; None for a GPU where there is one.
        min_matched: share of the model's entries the checkpoint must hold.

    Raises:
        FileNotFoundError, ValueError: a checkpoint that is missing, damaged or of another model; no test pipeline.
    """

    def __init__(
        self,
        cfg: Config,
        checkpoint: str,
        *,
        score_threshold: float = 0.3,
        device: str | None = None,
        min_matched: float = 0.9,
    ) -> None:
        self.takes_clips = takes_clips(cfg)
        self.model = build_model(cfg)
        check_channels(self.model, cfg.model)
        loaded = load_weights(self.model, checkpoint, min_matched)
        check_shapes(self.model, loaded, checkpoint)
        device = torch.device(device or get_device())
        self.model.to(device).eval()
        self.device = device.type
        if self.device == "cpu":
            optimize_for_cpu(self.model)

        dataset = innermost_dataset(cfg, "test")
        self.classes = Classes(saved_metainfo(loaded) or find_metainfo(dataset))
        # Pictures come without annotations; a video's frames are there already.
        load, *steps = (step for step in dataset.pipeline if "LoadAnnotations" not in type_name(step))
        self.load, self.pipeline = Compose([load]), Compose(steps)
        self.is_grey = str(load.get("color_type")).startswith("grayscale")
        self.score_threshold = score_threshold

    def read(self, path: Path) -> dict[str, Any]:
        """What the pipeline's first step makes of an image file, or of the video of a video classifier.

        Raises:
            FileNotFoundError, ValueError: the file is missing or damaged.
        """
        if not self.takes_clips:
            runtime.read_image(path)  # which says what is wrong with a file, unlike the pipeline's decoder
        elif path.suffix.lower() in IMAGE_SUFFIXES:
            raise ValueError(f"image {path} cannot be read as a video: name a video, or the folder of its frames")
        loaded = self.load({"img_path": str(path), "img_id": 0})
        if loaded is None:
            raise ValueError(f"{path} is damaged")
        return loaded

    def predict(self, loaded: dict[str, Any]) -> tuple[Any, np.ndarray]:
        """The data sample of one input, and a picture of it [H, W, 3] (RGB, uint8): the image, or the frames of the clips."""
        if self.is_grey and loaded["img"].ndim == 3:  # frames of a video and arrays have colours
            loaded = {**loaded, "img": mmcv.bgr2gray(loaded["img"])}
        batch = pseudo_collate([self.pipeline(dict(loaded))])  # its steps replace entries; the drawing needs these
        if self.takes_clips:
            from mmlisa.video import contact_sheet  # which needs mmpretrain

            picture = contact_sheet(batch["inputs"][0])
        else:
            image = loaded["img"].astype(np.uint8)
            picture = np.stack([image] * 3, axis=2) if image.ndim == 2 else np.ascontiguousarray(image[..., ::-1])
        with torch.no_grad():
            return self.model.test_step(batch)[0].cpu(), picture

    def draw(self, sample: Any, picture: np.ndarray) -> np.ndarray:
        """A picture ``[H, W, 3]`` (RGB) with its data sample, see :func:`mmlisa.visualization.overlays.draw_prediction`."""
        return draw_prediction(picture, sample, self.classes, score_threshold=self.score_threshold)

    def describe(self, sample: Any) -> dict[str, Any]:
        """A data sample as plain data, boxes and pixels being those of the input.

        Returns:
            One of these, the best first::

                {"instances": [{"category": "cat", "category_id": 0, "score": 0.98, "bbox": [x, y, width, height],
                                "segmentation": COCO's run-length encoding, where there are masks}, …]}
                {"segments": [{"category": "cat", "category_id": 0, "share": 0.25 of the pixels}, …]}
                {"scores": [{"category": "cat", "category_id": 0, "score": 0.98}, …]}, of at most five classes
        """

        def named(label: int, **entries: Any) -> dict[str, Any]:
            return {"category": self.classes.name(label), "category_id": label, **entries}

        found = read_sample(sample, self.score_threshold)
        if found.boxes is not None:
            instances = [
                named(int(label), score=round(float(score), 4), bbox=[round(v, 2) for v in (x0, y0, x1 - x0, y1 - y0)])
                for label, score, (x0, y0, x1, y1) in zip(found.labels, found.scores, found.boxes.tolist(), strict=True)
            ]
            if found.masks is not None:
                for instance, mask in zip(instances, found.masks, strict=True):
                    instance["segmentation"] = _run_lengths(mask)
            return {"instances": instances}
        if found.segmentation is not None:
            labels, counts = np.unique(found.segmentation, return_counts=True)
            order = np.argsort(-counts, kind="stable")
            return {"segments": [named(int(labels[i]), share=round(float(counts[i] / counts.sum()), 4)) for i in order]}
        scores = found.probabilities
        best = np.argsort(-scores, kind="stable")[:5]
        return {"scores": [named(int(i), score=round(float(scores[i]), 4)) for i in best]}


class ExportedPredictor(Predictor):
    """An exported file in the place of a checkpoint: read, run and drawn by the same steps as :class:`Predictor`.

    Raises:
        FileNotFoundError, ValueError: see :func:`mmlisa.deploy.runtime.load`; also for a model of videos.
    """

    def __init__(self, path: str | Path, *, score_threshold: float = 0.3) -> None:
        self.exported = runtime.load(path)
        if self.exported.task == "video":
            raise ValueError(f"{str(path)!r} classifies clips of frames; `mmlisa test CONFIG {path}` evaluates it")
        self.classes = Classes({"classes": self.exported.classes})
        self.takes_clips, self.score_threshold, self.device = False, score_threshold, "cpu"

    def read(self, path: Path) -> dict[str, Any]:
        return as_loaded(runtime.read_image(path))

    def predict(self, loaded: dict[str, Any]) -> tuple[Any, np.ndarray]:
        picture = np.ascontiguousarray(loaded["img"][..., ::-1])
        return fill_sample(BaseDataElement(), self.exported.predict(picture, 0.0)), picture


class TiledPredictor(Predictor):
    """A detector on overlapping tiles of an image, for objects that would be too small in the resized whole.

    supervision cuts the tiles and drops the boxes that overlap a better one of their class in another tile by more than half.

    Args:
        predictor: the detector.
        tile: side of a tile in pixels.
        overlap: share of a tile that the next one repeats.

    Raises:
        ImportError: supervision is missing.
        ValueError: the model is not a detector (when it predicts).
    """

    def __init__(self, predictor: Predictor, tile: int, overlap: float) -> None:
        try:
            import supervision
        except ImportError as error:
            raise ImportError("--tile needs supervision: pip install 'mmlisa[tiles]'") from error
        self.predictor, self.classes, self.device = predictor, predictor.classes, predictor.device
        self.takes_clips, self.score_threshold, self.read = False, predictor.score_threshold, predictor.read

        def on_tile(image: np.ndarray) -> supervision.Detections:
            found = read_sample(predictor.predict(as_loaded(image))[0], predictor.score_threshold)
            if found.boxes is None:
                raise ValueError(
                    "--tile needs a detector: parts of an image say nothing about its class or its regions"
                )
            return supervision.Detections(found.boxes, found.masks, found.scores, found.labels)

        self.slicer = supervision.InferenceSlicer(on_tile, slice_wh=tile, overlap_wh=int(tile * overlap))

    def predict(self, loaded: dict[str, Any]) -> tuple[Any, np.ndarray]:
        picture = np.ascontiguousarray(loaded["img"][..., ::-1])
        found = self.slicer(picture)
        masks = None if found.mask is None else np.asarray(found.mask)
        prediction = runtime.Prediction(found.xyxy.astype(np.float32), found.confidence, found.class_id, masks)
        return fill_sample(BaseDataElement(), prediction), picture


def as_loaded(picture: np.ndarray) -> dict[str, Any]:
    """The entries that the first step of a test pipeline would make of a file with this picture ``[H, W, 3]`` (RGB)."""
    size = picture.shape[:2]
    image = np.ascontiguousarray(picture[..., ::-1])
    return dict(img=image, img_path="picture", img_id=0, img_shape=size, ori_shape=size)


def fill_sample(sample: BaseDataElement, found: runtime.Prediction) -> BaseDataElement:
    """Write the runtime's results into a data sample, under OpenMMLab's names."""
    if found.boxes is not None:
        fields = dict(bboxes=found.boxes, scores=found.scores, labels=found.labels, masks=found.masks)
        fields = {name: torch.from_numpy(value) for name, value in fields.items() if value is not None}
        sample.pred_instances = InstanceData(**fields)
    elif found.segmentation is not None:
        sample.pred_sem_seg = PixelData(data=torch.from_numpy(found.segmentation)[None])
    else:
        sample.pred_score = torch.from_numpy(found.probabilities)
        sample.pred_label = sample.pred_score.argmax(0, keepdim=True)
    return sample


def read_sample(sample: BaseDataElement, threshold: float = 0.0) -> runtime.Prediction:
    """The inverse of :func:`fill_sample`: detections whose scores reach ``threshold``, the best first."""
    if "pred_instances" in sample:
        found = sample.pred_instances
        found = found[found.scores >= threshold]
        found = found[found.scores.argsort(descending=True, stable=True)].numpy()
        return runtime.Prediction(found.bboxes, found.scores, found.labels, found.get("masks"))
    if "pred_sem_seg" in sample:
        return runtime.Prediction(segmentation=sample.pred_sem_seg.data[0].numpy())
    return runtime.Prediction(probabilities=sample.pred_score.numpy())


@MODELS.register_module()
class ExportedModel(BaseModel):
    """An exported file as the model of an MMEngine runner, which evaluates it with a config's data and metrics.

    Images are read by the runtime from their files, not taken from the config's pipeline. Clips come from the pipeline, and a
    prediction is the mean of the probabilities of its views.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        self.exported = runtime.load(path)

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
        return fill_sample(sample, runtime.Prediction(probabilities=probabilities.mean(axis=0)))


@HOOKS.register_module()
class ExportedClassesHook(Hook):
    """Compares the classes of an exported file with those of the test data.

    Raises:
        ValueError: they differ in number, name or order.
    """

    priority = "VERY_HIGH"

    def before_test(self, runner: Runner) -> None:
        exported = runner.model.exported
        names = exported.classes, list(Classes(getattr(runner.test_dataloader.dataset, "metainfo", None)).names)
        if not all(names):
            return
        for label, (ours, theirs) in enumerate(zip_longest(*names, fillvalue="(none)")):
            if ours != theirs:
                raise ValueError(
                    f"{str(exported.path)!r} has {len(names[0])} classes and test_dataloader.dataset has {len(names[1])}; "
                    f"label {label} is '{ours}' in the file and '{theirs}' in the data; test it with the config that it was "
                    "exported from"
                )


def exported_config(cfg: Config, path: str | Path) -> Config:
    """A copy of a config that tests an exported file in the place of its model, if the data have the file's classes.

    The copy has a work dir of its own, a subfolder of the config's with the name of the file: MMEngine's runner writes its config
    there. In the training's folder it would overwrite the config that :func:`load` reads.
    """
    cfg = deepcopy(cfg)
    cfg.model, cfg.load_from, cfg.resume = dict(type="mmlisa.ExportedModel", path=str(path)), None, False
    cfg.data_preprocessor = None  # MMEngine's runner would pass it to the exported model
    cfg.work_dir = str(Path(cfg.get("work_dir") or "work_dirs") / Path(path).stem)
    cfg.custom_hooks = [*(cfg.get("custom_hooks") or []), dict(type="mmlisa.ExportedClassesHook")]
    return cfg


class Loaded:
    """A checkpoint with the interface of an exported file; see :func:`load`."""

    def __init__(self, predictor: Predictor) -> None:
        self.predictor, self.classes = predictor, list(predictor.classes.names)

    def predict(self, image: Any, score_threshold: float | None = None) -> runtime.Prediction:
        """See :meth:`mmlisa.deploy.runtime.Model.predict`; None takes the threshold of the :class:`Predictor`, 0.3 by default."""
        if self.predictor.takes_clips:
            raise ValueError(
                "this model classifies clips, not images; predict on videos with `mmlisa infer CONFIG CHECKPOINT VIDEO`"
            )
        threshold = self.predictor.score_threshold if score_threshold is None else score_threshold
        return read_sample(self.predictor.predict(as_loaded(runtime.read_image(image)))[0], threshold)


def load(path: str | Path, config: str | Path | None = None, *, device: str | None = None) -> Loaded | runtime.Model:
    """Open a trained model for prediction: ``mmlisa.load("best.pth").predict("street.jpg")``.

    Args:
        path: a checkpoint, or an exported ``.onnx`` file.
        config: config of the checkpoint; None for the one that the training wrote beside it.
        device: where a checkpoint runs; None for a GPU if there is one.

    Raises:
        FileNotFoundError, ValueError: a file that is missing, damaged or of another model; no config beside the checkpoint.
    """
    if Path(path).suffix == ".onnx":
        return runtime.load(path)
    from mmlisa.training.config import load_config

    return Loaded(Predictor(load_config(str(config or find_config(Path(path)))), str(path), device=device))


def find_config(checkpoint: Path) -> Path:
    """The config that a training wrote into the folder of its checkpoints.

    Raises:
        FileNotFoundError: the folder has none, or several of other names.
    """
    folder = checkpoint.absolute().parent
    configs = sorted(folder.glob("*.py"))
    named = [path for path in configs if path.stem == folder.name]
    if len(named or configs) != 1:
        raise FileNotFoundError(
            f"folder {str(folder)!r} has {len(configs)} configs; name the one of {checkpoint.name!r}: "
            "mmlisa.load(checkpoint, config)"
        )
    return (named or configs)[0]


def summarise(result: dict[str, Any]) -> str:
    """One line for what :meth:`Predictor.describe` returns: objects of each class, shares of the pixels, or the class."""
    if "instances" in result:
        counts = Counter(instance["category"] for instance in result["instances"])
        return ", ".join(f"{n} {name}" for name, n in counts.most_common()) or "nothing found"
    if "segments" in result:
        return ", ".join(f"{segment['category']} {segment['share']:.0%}" for segment in result["segments"][:8])
    best = result["scores"][0]
    return f"{best['category']} ({best['score']:.2f})"


def _run_lengths(mask: np.ndarray) -> dict[str, Any]:
    """A mask ``[H, W]`` as COCO's result files have it."""
    from pycocotools.mask import encode

    encoded = encode(np.asfortranarray(mask.astype(np.uint8)))
    return {"size": [int(side) for side in encoded["size"]], "counts": encoded["counts"].decode()}


def predict_pictures(
    cfg: Config | None,
    checkpoint: str,
    images: Sequence[str],
    out_dir: Path,
    *,
    score_threshold: float = 0.3,
    device: str | None = None,
    min_matched: float = 0.9,
    tile: int | None = None,
    overlap: float = 0.2,
) -> Iterator[Prediction]:
    """Writes each input with its boxes, masks, labels and scores (or its segmentation, or its class) into ``out_dir``.

    Args:
        cfg: a whole config; None for an exported file in the place of the checkpoint.
        images: images, videos, or folders of them; for a video classifier, videos, folders of a video's frames, or folders
            of either.
        out_dir: gets ``<stem>.png`` per image and ``<stem>.mp4`` per video; inputs of one stem are numbered.

        tile, overlap: see :class:`TiledPredictor`; None for whole images.

    The rest is :class:`Predictor`'s.

    Yields:
        One :class:`Prediction` per input, as it is done. An input that cannot be read does not end the rest.

    Raises:
        FileNotFoundError, ValueError: a folder without images, or what :class:`Predictor` raises; nothing is written then.
    """
    expand = _expand_videos if cfg and takes_clips(cfg) else _expand
    paths = list(dict.fromkeys(path for name in images for path in expand(Path(name))))
    if cfg is None:
        predictor = ExportedPredictor(checkpoint, score_threshold=score_threshold)
    else:
        predictor = Predictor(cfg, checkpoint, score_threshold=score_threshold, device=device, min_matched=min_matched)
    if tile:
        predictor = TiledPredictor(predictor, tile, overlap)
    out_dir.mkdir(parents=True, exist_ok=True)
    taken = {path.resolve() for path in paths}  # a picture never replaces an input
    for path in tqdm(paths, "predictions", leave=False, disable=None):
        is_video = path.suffix.lower() in VIDEO_SUFFIXES and not predictor.takes_clips
        stem = path.name if path.is_dir() else path.stem
        target = free_path(out_dir / f"{stem}{'.mp4' if is_video else '.png'}", taken)
        try:
            if is_video:
                yield _predict_video(predictor, path, target)
            else:
                sample, picture = predictor.predict(predictor.read(path))
                mmcv.imwrite(predictor.draw(sample, picture)[..., ::-1], str(target))
                result = predictor.describe(sample)
                yield Prediction(path, target, summarise(result), result)
        except (ValueError, OSError) as error:
            yield Prediction(path, None, str(error))
        except (RuntimeError, ArithmeticError, IndexError, AssertionError, cv2.error) as error:
            # Of the pipeline or the model, for example for an image two pixels wide.
            yield Prediction(path, None, f"{path} cannot be processed: {type(error).__name__}: {error}")


def _predict_video(predictor: Predictor, path: Path, target: Path) -> Prediction:
    if not path.is_file():
        raise FileNotFoundError(f"video {path} does not exist")
    video = mmcv.VideoReader(str(path))
    if not video.opened or video.width == 0:
        raise ValueError(
            f"video {path} cannot be read; its codec may be missing. `ffmpeg -i {path} frames/%05d.jpg` makes images"
        )
    results = []

    def drawings() -> Iterator[np.ndarray]:
        for frame in tqdm(video, path.name, len(video), leave=False, unit="frame", disable=None):
            if frame is None:
                return
            sample, picture = predictor.predict(as_loaded(frame[..., ::-1]))
            results.append(predictor.describe(sample))
            yield predictor.draw(sample, picture)

    write_video(target, drawings(), video.fps or 25.0)
    if not results:
        raise ValueError(f"video {path} has no frame that can be read")
    return Prediction(path, target, f"{len(results)} frames; in the last: {summarise(results[-1])}", results)


def _expand(path: Path) -> list[Path]:
    if path.is_dir():
        suffixes = (*IMAGE_SUFFIXES, *VIDEO_SUFFIXES)
        # Directly in the folder, or else in its subfolders, as classes are stored.
        patterns = (_SHOWN, f"{_SHOWN}/{_SHOWN}")
        found = [sorted(p for p in path.glob(pattern) if p.suffix.lower() in suffixes) for pattern in patterns]
        found = found[0] or found[1]
        if not found:
            raise FileNotFoundError(f"folder {path} holds no image ({', '.join(IMAGE_SUFFIXES)})")
        return found
    return [path]


def _expand_videos(path: Path) -> list[Path]:
    """A video, or a folder of its frames, as it is; of another folder the videos and the folders of frames in it."""
    if not path.is_dir() or (_holds(path, IMAGE_SUFFIXES) and not _holds(path, VIDEO_SUFFIXES)):
        return [path]
    found = sorted(p for p in path.glob(_SHOWN) if p.suffix.lower() in VIDEO_SUFFIXES or _holds(p, IMAGE_SUFFIXES))
    if not found:
        raise FileNotFoundError(f"folder {path} holds no video ({', '.join(VIDEO_SUFFIXES)}) and no folder of frames")
    return found


def _holds(path: Path, suffixes: Sequence[str]) -> bool:
    """Whether there is a file of such a kind in a folder."""
    return path.is_dir() and any(p.suffix.lower() in suffixes for p in path.glob(_SHOWN))
