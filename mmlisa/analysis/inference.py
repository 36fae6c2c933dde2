"""Predictions on single pictures and videos, drawn by the visualizer of the model's own library."""

from collections import Counter
from collections.abc import Iterator, Sequence
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple

import mmcv
import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import Compose, pseudo_collate
from mmengine.device import get_device
from mmengine.registry import DATASETS, MODELS, VISUALIZERS, init_default_scope
from PIL import Image

from mmlisa.checkpoints import load_weights
from mmlisa.engine import optimize_for_cpu
from mmlisa.engine.checks import check_channels, check_shapes, explain_unknown_type

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp")
VIDEO_SUFFIXES = (".mp4", ".avi", ".mov", ".mkv", ".webm", ".m4v", ".mpg", ".mpeg")


class Prediction(NamedTuple):
    """What became of one input: the file written (None where it could not be read), and a line that says what is in it."""

    source: Path
    target: Path | None
    summary: str


class Predictor:
    """A model with its weights, its test pipeline and its library's visualizer.

    Args:
        cfg: a whole config.
        checkpoint: file with the weights; any entry of another shape than the model's is refused.
        score_threshold: detections below it are neither drawn nor counted.
        device: where the model runs; None for a GPU where there is one.
        min_matched: share of the model's entries the checkpoint must hold.

    Raises:
        FileNotFoundError, ValueError: a checkpoint that is missing, damaged or of another model.
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
        init_default_scope(cfg.get("default_scope", "mmengine"))
        try:
            self.model = MODELS.build(cfg.model)
        except KeyError as error:
            raise explain_unknown_type(error) or error from error
        check_channels(self.model, cfg.model)
        loaded = load_weights(self.model, checkpoint, min_matched)
        check_shapes(self.model, loaded, checkpoint)
        meta = loaded.get("meta", {})
        device = torch.device(device or get_device())
        self.model.to(device).eval()
        if device.type == "cpu":
            optimize_for_cpu(self.model)

        dataset = cfg.test_dataloader.dataset
        while "dataset" in dataset:
            dataset = dataset.dataset
        self.visualizer = VISUALIZERS.build({**cfg.visualizer, "vis_backends": None, "name": "infer"})
        self.visualizer.dataset_meta = meta.get("dataset_meta") or DATASETS.get(dataset.type).METAINFO
        # Pictures come without annotations; a video's frames are there already.
        load, *steps = (step for step in dataset.pipeline if "LoadAnnotations" not in step["type"])
        self.load, self.pipeline = Compose([load]), Compose(steps)
        self.takes_clips = load["type"].endswith("LoadClips")  # a video is one input of a video classifier
        self.score_threshold = score_threshold

    def read(self, path: Path) -> dict[str, Any]:
        """What the pipeline's first step makes of an image file, or of the video of a video classifier.

        Raises:
            FileNotFoundError, ValueError: the file is missing or damaged.
        """
        if not self.takes_clips:
            _check_image(path)
        loaded = self.load({"img_path": str(path), "img_id": 0})
        if loaded is None:
            raise ValueError(f"{path} is damaged")
        return loaded

    def predict(self, loaded: dict[str, Any]) -> tuple[Any, np.ndarray]:
        """The data sample of one input, and a picture of it [H, W, 3] (RGB, uint8): the image, or the frames of the clips."""
        batch = pseudo_collate([self.pipeline(dict(loaded))])  # its steps replace entries; the drawing needs these
        if self.takes_clips:
            from mmlisa.video import contact_sheet  # which needs mmpretrain

            picture = contact_sheet(batch["inputs"][0])
        else:
            picture = np.ascontiguousarray(loaded["img"][..., ::-1].astype(np.uint8))
        with torch.no_grad():
            return self.model.test_step(batch)[0].cpu(), picture

    def draw(self, sample: Any, picture: np.ndarray, target: Path | None) -> np.ndarray:
        """Draws a data sample, into a file where one is named; returns the drawing [H, W, 3] (RGB)."""
        file = None if target is None else str(target)
        if hasattr(self.visualizer, "visualize_cls"):
            self.visualizer.visualize_cls(picture, sample, draw_gt=False, out_file=file)
        else:
            draw = self.visualizer.add_datasample
            options = {"pred_score_thr": self.score_threshold} if "pred_score_thr" in signature(draw).parameters else {}
            draw("image", picture, sample, draw_gt=False, out_file=file, **options)
        return self.visualizer.get_image()

    def count(self, sample: Any) -> str:
        """How many objects of each class; the class and its score; or the share of the pixels of each class."""
        classes = (self.visualizer.dataset_meta or {}).get("classes") or ()

        def name(index: int) -> str:
            return str(classes[index]) if index < len(classes) else f"class {index}"

        if hasattr(sample, "pred_instances"):
            found = sample.pred_instances
            labels = found.labels[found.scores >= self.score_threshold].tolist()
            return ", ".join(f"{n} {name(i)}" for i, n in Counter(labels).most_common()) or "nothing found"
        if hasattr(sample, "pred_sem_seg"):
            labels, counts = np.unique(sample.pred_sem_seg.data.numpy(), return_counts=True)
            order = np.argsort(-counts)
            return ", ".join(f"{name(int(labels[i]))} {counts[i] / counts.sum():.0%}" for i in order[:8])
        label = int(sample.pred_label.flatten()[0])
        return f"{name(label)} ({float(sample.pred_score[label]):.2f})"


def predict_pictures(
    cfg: Config,
    checkpoint: str,
    images: Sequence[str],
    out_dir: Path,
    *,
    score_threshold: float = 0.3,
    device: str | None = None,
    min_matched: float = 0.9,
) -> Iterator[Prediction]:
    """Writes each input with its boxes, masks, labels and scores (or its segmentation, or its class) into ``out_dir``.

    Args:
        images: images, videos, or folders of them.
        out_dir: gets ``<stem>.png`` per image and ``<stem>.mp4`` per video; inputs of one stem are numbered.

    The rest is :class:`Predictor`'s.

    Yields:
        One :class:`Prediction` per input, as it is done. An input that cannot be read does not end the rest.

    Raises:
        FileNotFoundError, ValueError: a folder without images, or what :class:`Predictor` raises; nothing is written then.
    """
    paths = list(dict.fromkeys(path for name in images for path in _expand(Path(name))))
    predictor = Predictor(cfg, checkpoint, score_threshold=score_threshold, device=device, min_matched=min_matched)
    out_dir.mkdir(parents=True, exist_ok=True)
    taken = {path.resolve() for path in paths}  # a picture never replaces an input
    for path in paths:
        is_video = path.suffix.lower() in VIDEO_SUFFIXES and not predictor.takes_clips
        target = _free(out_dir / f"{path.stem}{'.mp4' if is_video else '.png'}", taken)
        try:
            if is_video:
                yield _predict_video(predictor, path, target)
            else:
                sample, picture = predictor.predict(predictor.read(path))
                predictor.draw(sample, picture, target)
                yield Prediction(path, target, predictor.count(sample))
        except (ValueError, OSError) as error:
            yield Prediction(path, None, str(error))


def _predict_video(predictor: Predictor, path: Path, target: Path) -> Prediction:
    import cv2

    if not path.is_file():
        raise FileNotFoundError(f"video {path} does not exist")
    video = mmcv.VideoReader(str(path))
    if not video.opened or video.width == 0:
        raise ValueError(
            f"video {path} cannot be read; its codec may be missing. `ffmpeg -i {path} frames/%05d.jpg` makes images"
        )
    writer = cv2.VideoWriter(
        str(target), cv2.VideoWriter_fourcc(*"mp4v"), video.fps or 25.0, (video.width, video.height)
    )
    if not writer.isOpened():
        raise OSError(f"video {target} cannot be written: OpenCV has no MPEG-4 encoder here")
    frames = 0
    try:
        for frame in video:
            if frame is None:
                break
            size = frame.shape[:2]
            loaded = {
                "img": frame,
                "img_path": f"{path}#{frames}",
                "img_id": frames,
                "img_shape": size,
                "ori_shape": size,
            }
            sample, picture = predictor.predict(loaded)
            writer.write(np.ascontiguousarray(predictor.draw(sample, picture, None)[..., ::-1]))
            frames += 1
    finally:
        writer.release()
    if not frames:
        target.unlink(missing_ok=True)
        raise ValueError(f"video {path} has no frame that can be read")
    return Prediction(path, target, f"{frames} frames; in the last: {predictor.count(sample)}")


def _check_image(path: Path) -> None:
    if not path.is_file():
        raise FileNotFoundError(f"image {path} does not exist")
    try:
        with Image.open(path) as image:
            image.load()
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"image {path} cannot be read: {error}") from error


def _expand(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(p for p in path.iterdir() if p.suffix.lower() in (*IMAGE_SUFFIXES, *VIDEO_SUFFIXES))
        if not found:
            raise FileNotFoundError(f"folder {path} holds no image ({', '.join(IMAGE_SUFFIXES)})")
        return found
    return [path]


def _free(target: Path, taken: set[Path]) -> Path:
    """The first of ``name.png``, ``name_2.png``, … that is not taken; takes it."""
    number, free = 1, target
    while free.resolve() in taken:
        number += 1
        free = target.with_stem(f"{target.stem}_{number}")
    taken.add(free.resolve())
    return free
