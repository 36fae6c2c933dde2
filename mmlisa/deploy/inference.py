"""Predictions on single pictures and videos, drawn and as data."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import mmcv
import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import Compose, pseudo_collate
from mmengine.device import get_device
from mmengine.registry import DATASETS
from PIL import Image
from tqdm import tqdm

from mmlisa.checkpoints import load_weights
from mmlisa.engine.building import build_model
from mmlisa.engine.checks import check_channels, check_shapes
from mmlisa.engine.cpu import optimize_for_cpu
from mmlisa.visualization.overlays import Classes, draw_prediction, free_path

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp")
VIDEO_SUFFIXES = (".mp4", ".avi", ".mov", ".mkv", ".webm", ".m4v", ".mpg", ".mpeg")


class Prediction(NamedTuple):
    """What became of one input.

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


def test_dataset(cfg: Config) -> Config:
    """The innermost data set that a config tests on."""
    dataset = cfg.test_dataloader.dataset
    while "dataset" in dataset:
        dataset = dataset.dataset
    return dataset


def takes_clips(cfg: Config) -> bool:
    """Whether a config's model classifies videos, each of which is one input."""
    return test_dataset(cfg).pipeline[0]["type"].endswith("LoadClips")


class Predictor:
    """A model with its weights, its test pipeline and its classes.

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
        self.model = build_model(cfg)
        check_channels(self.model, cfg.model)
        loaded = load_weights(self.model, checkpoint, min_matched)
        check_shapes(self.model, loaded, checkpoint)
        meta = loaded.get("meta", {})
        device = torch.device(device or get_device())
        self.model.to(device).eval()
        if device.type == "cpu":
            optimize_for_cpu(self.model)

        dataset = test_dataset(cfg)
        self.classes = Classes(meta.get("dataset_meta") or DATASETS.get(dataset.type).METAINFO)
        # Pictures come without annotations; a video's frames are there already.
        load, *steps = (step for step in dataset.pipeline if "LoadAnnotations" not in step["type"])
        self.load, self.pipeline = Compose([load]), Compose(steps)
        self.takes_clips = takes_clips(cfg)
        self.score_threshold = score_threshold

    def read(self, path: Path) -> dict[str, Any]:
        """What the pipeline's first step makes of an image file, or of the video of a video classifier.

        Raises:
            FileNotFoundError, ValueError: the file is missing or damaged.
        """
        if not self.takes_clips:
            _check_image(path)
        elif path.suffix.lower() in IMAGE_SUFFIXES:
            raise ValueError(f"image {path} cannot be read as a video: name a video, or the folder of its frames")
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

        if "pred_instances" in sample:
            found = sample.pred_instances
            found = found[found.scores >= self.score_threshold]
            found = found[found.scores.argsort(descending=True, stable=True)]
            instances = [
                named(int(label), score=round(float(score), 4), bbox=[round(v, 2) for v in (x0, y0, x1 - x0, y1 - y0)])
                for label, score, (x0, y0, x1, y1) in zip(
                    found.labels, found.scores, found.bboxes.tolist(), strict=True
                )
            ]
            if "masks" in found:
                for instance, mask in zip(instances, found.masks, strict=True):
                    instance["segmentation"] = _run_lengths(np.asarray(mask))
            return {"instances": instances}
        if "pred_sem_seg" in sample:
            labels, counts = np.unique(sample.pred_sem_seg.data.numpy(), return_counts=True)
            order = np.argsort(-counts, kind="stable")
            return {"segments": [named(int(labels[i]), share=round(float(counts[i] / counts.sum()), 4)) for i in order]}
        scores = np.asarray(sample.pred_score)
        best = np.argsort(-scores, kind="stable")[:5]
        return {"scores": [named(int(i), score=round(float(scores[i]), 4)) for i in best]}


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
        images: images, videos, or folders of them; for a video classifier, videos, folders of a video's frames, or folders
            of either.
        out_dir: gets ``<stem>.png`` per image and ``<stem>.mp4`` per video; inputs of one stem are numbered.

    The rest is :class:`Predictor`'s.

    Yields:
        One :class:`Prediction` per input, as it is done. An input that cannot be read does not end the rest.

    Raises:
        FileNotFoundError, ValueError: a folder without images, or what :class:`Predictor` raises; nothing is written then.
    """
    expand = _expand_videos if takes_clips(cfg) else _expand
    paths = list(dict.fromkeys(path for name in images for path in expand(Path(name))))
    predictor = Predictor(cfg, checkpoint, score_threshold=score_threshold, device=device, min_matched=min_matched)
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
    writer, results = None, []
    try:
        for frame in tqdm(video, path.name, len(video), leave=False, unit="frame", disable=None):
            if frame is None:
                break
            size = frame.shape[:2]
            number = len(results)
            loaded = dict(img=frame, img_path=f"{path}#{number}", img_id=number, img_shape=size, ori_shape=size)
            sample, picture = predictor.predict(loaded)
            drawing = predictor.draw(sample, picture)
            writer = writer or _open_writer(target, video.fps or 25.0, drawing.shape)
            writer.write(np.ascontiguousarray(drawing[..., ::-1]))
            results.append(predictor.describe(sample))
    finally:
        if writer:
            writer.release()
    if not results:
        raise ValueError(f"video {path} has no frame that can be read")
    return Prediction(path, target, f"{len(results)} frames; in the last: {summarise(results[-1])}", results)


def _open_writer(target: Path, rate: float, shape: Sequence[int]) -> cv2.VideoWriter:
    writer = cv2.VideoWriter(str(target), cv2.VideoWriter_fourcc(*"mp4v"), rate, (shape[1], shape[0]))
    if not writer.isOpened():
        raise OSError(f"video {target} cannot be written: OpenCV has no MPEG-4 encoder here")
    return writer


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
        suffixes = (*IMAGE_SUFFIXES, *VIDEO_SUFFIXES)
        # Directly in the folder, or else in its subfolders, as classes are stored.
        found = [sorted(p for p in path.glob(pattern) if p.suffix.lower() in suffixes) for pattern in ("*", "*/*")]
        found = found[0] or found[1]
        if not found:
            raise FileNotFoundError(f"folder {path} holds no image ({', '.join(IMAGE_SUFFIXES)})")
        return found
    return [path]


def _expand_videos(path: Path) -> list[Path]:
    """A video, or a folder of its frames, as it is; of another folder the videos and the folders of frames in it."""
    if not path.is_dir() or (_holds(path, IMAGE_SUFFIXES) and not _holds(path, VIDEO_SUFFIXES)):
        return [path]
    found = sorted(p for p in path.iterdir() if p.suffix.lower() in VIDEO_SUFFIXES or _holds(p, IMAGE_SUFFIXES))
    if not found:
        raise FileNotFoundError(f"folder {path} holds no video ({', '.join(VIDEO_SUFFIXES)}) and no folder of frames")
    return found


def _holds(path: Path, suffixes: Sequence[str]) -> bool:
    """Whether there is a file of such a kind in a folder."""
    return path.is_dir() and any(p.suffix.lower() in suffixes for p in path.iterdir())
