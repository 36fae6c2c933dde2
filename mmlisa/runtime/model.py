"""Exported files, run by onnxruntime."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from .images import STEPS, InputError, one_or_all, one_size_batches, read_image
from .predictions import Prediction, Tiles, best_class, enlarge, paste

FORMAT = 1  # version of the metadata
Run = Callable[[np.ndarray], list[np.ndarray]]


def load(path: str | Path, *, threads: int | None = None, providers: Sequence[str] | None = None) -> "Model":
    """Open a file that ``mmlisa export`` wrote.

    Args:
        path: the ``.onnx`` file.
        threads: number of threads; None for all cores.
        providers: onnxruntime's execution providers; None for the CPU.

    Raises:
        InputError: onnxruntime is not installed, or ``mmlisa export`` did not write the file. onnxruntime raises its own errors.
    """
    if not find_spec("onnxruntime"):
        raise InputError(f"{str(path)!r} needs onnxruntime, which is not installed: pip install onnxruntime")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors: the warnings are about nodes that onnxruntime cannot fold
    options.intra_op_num_threads = threads or 0
    session = onnxruntime.InferenceSession(str(path), options, providers or ["CPUExecutionProvider"])
    (taken,) = session.get_inputs()
    metadata = session.get_modelmeta().custom_metadata_map
    return Model(path, metadata, taken.shape, lambda image: session.run(None, {taken.name: image}))


class Model:
    """An exported model, run by onnxruntime or another engine.

    Args:
        path: its file, for messages.
        metadata: metadata of the file, JSON by key.
        shape: shape of the input, with a name or None for a free axis.
        run: function from the prepared input to the outputs of the network.

    Attributes:
        task: ``'detection'``, ``'segmentation'``, ``'classification'`` or ``'video'``.
        classes: names of the classes.

    Raises:
        InputError: the metadata are not those of ``mmlisa export``.
    """

    def __init__(self, path: str | Path, metadata: dict[str, str], shape: Sequence[Any], run: Run) -> None:
        if "mmlisa_format" not in metadata:
            raise InputError(f"{str(path)!r} has no metadata of mmlisa; write it with `mmlisa export` (without --raw)")
        self.metadata = {key[7:]: json.loads(value) for key, value in metadata.items() if key.startswith("mmlisa_")}
        self.path, self.shape, self.run = str(path), list(shape), run
        self.task, self.classes = self.metadata["task"], self.metadata["classes"]
        if unknown := {name for name, _ in self.metadata["steps"]} - STEPS.keys():
            raise InputError(
                f"{self.path!r} has the steps {sorted(unknown)}, which this version lacks; export it again"
            )

    def predict(
        self,
        image: Any,
        score_threshold: float | None = None,
        *,
        batch: int = 1,
        tile: int | None = None,
        overlap: float | None = None,
    ) -> Prediction | list[Prediction] | Iterator[Prediction]:
        """Predict on an image, on each of a list, or on each of an iterator.

        Args:
            image: see :func:`read_image`; a list, whose predictions are returned as a list; or an iterator, whose predictions are
                an iterator, so that neither images nor results need to fit into memory.
            score_threshold: lowest score of a detection; None for the threshold of the file.
            batch: most images that the network takes at once. Only images of one size after preparation, one after the other, are
                taken together, so that results are those of single images. Tiles, and images of a file whose batch is one, are
                taken singly.
            tile: side in pixels of the tiles on which a detector predicts (:class:`Tiles`); 0 for the whole image; None for the
                tiles of the file, if it has any.
            overlap: share of a tile that the next one repeats; None for that of the file, or 0.2.

        Returns:
            :class:`Prediction`, a list of them, or an iterator.

        Raises:
            InputError: an image is missing, damaged or of another size than the network takes; ``tile`` with a model that is
                not a detector; see :func:`check_tiles`.
        """
        if self.task == "video":
            raise InputError(f"{self.path!r} classifies clips: call run() with an array of shape {self.shape}")
        tile = self.metadata.get("tile") if tile is None else tile
        if tile and self.task != "detection":
            raise InputError(f"tile={tile}: {self.path!r} is not a detector; leave it out")
        threshold = self.metadata["score_threshold"] if score_threshold is None else score_threshold
        overlap = self.metadata.get("overlap", 0.2) if overlap is None else overlap
        return one_or_all(image, lambda images: self._predict_all(images, threshold, batch, tile, overlap))

    def _predict_all(
        self, images: Iterable[Any], threshold: float, batch: int, tile: int | None, overlap: float
    ) -> Iterator[Prediction]:
        pictures = map(read_image, images)
        if tile:
            for picture in pictures:
                yield self._predict_tiles(picture, Tiles(picture.shape[:2], tile, overlap), threshold)
            return
        if isinstance(self.shape[0], int):
            batch = 1
        prepared = ((*self.prepare(picture), picture.shape[:2]) for picture in pictures)
        for chunk in one_size_batches(prepared, batch, lambda item: item[0].shape):
            outputs = self.run(np.concatenate([taken for taken, _, _ in chunk]))
            for index, (_, inside, original) in enumerate(chunk):
                one = outputs if len(chunk) == 1 else [output[index : index + 1] for output in outputs]
                yield self.finish(one, inside, original, threshold)

    def _predict_tiles(self, picture: np.ndarray, tiles: Tiles, threshold: float) -> Prediction:
        for index, (x1, y1, x2, y2) in enumerate(tiles.windows):
            part = picture[y1:y2, x1:x2]
            prepared, inside = self.prepare(part)
            tiles.add(index, self.finish(self.run(prepared), inside, part.shape[:2], 0.0))
        return tiles.merge(threshold)

    def prepare(self, picture: np.ndarray) -> tuple[np.ndarray, tuple[int, int]]:
        """``[H, W, 3]`` (RGB, uint8) -> the input ``[1, 3, h, w]``, and (h, w) of the resized image without padding."""
        inside = picture.shape[:2]
        for name, options in self.metadata["steps"]:
            picture = STEPS[name](picture, **options)
            inside = inside if name == "Pad" else picture.shape[:2]
        size = picture.shape[:2]
        taken = [n if isinstance(n, int) else side for n, side in zip(self.shape[2:], size, strict=True)]
        if np.less(taken, size).any():
            raise InputError(
                f"{self.path!r} takes images of {taken[0]}x{taken[1]} (H, W) only, and this one has {size[0]}x{size[1]} "
                f"after resizing; export it without --size, or with --size {(side := max(*taken, *size))} {side}"
            )
        mean, std = (np.float32(self.metadata[key]) for key in ("mean", "std"))
        padded = np.full((*taken, 3), self.metadata["border"], np.float32)
        padded[: size[0], : size[1]] = picture[..., :: -1 if self.metadata["channels"] == "BGR" else 1]
        padded = np.rint(padded).astype(np.uint8) if self.metadata["uint8"] else (padded - mean) / std
        return np.ascontiguousarray(padded.transpose(2, 0, 1))[None], inside

    def finish(
        self, outputs: Sequence[np.ndarray], size: tuple[int, int], original: tuple[int, int], threshold: float = 0.0
    ) -> Prediction:
        """Outputs of the network -> results at the original size (H, W); ``size``: see :meth:`prepare`."""
        if self.task == "classification":
            return Prediction(probabilities=outputs[0][0])
        (height, width), (h, w) = original, size
        if self.task == "segmentation":
            logits = outputs[0][0][:, :h, :w]
            return Prediction(segmentation=best_class(logits, original, self.metadata["align_corners"]))
        (boxes, scores, labels), wanted = outputs[:3], outputs[1] >= threshold
        sides = np.float32([width, height, width, height])
        boxes = boxes[wanted] * sides / np.float32([w, h, w, h])
        if self.metadata["clip"]:  # a graph of a fixed size knows the padded image only
            boxes = boxes.clip(0, sides)
        found = Prediction(boxes, scores[wanted], labels[wanted])
        if len(outputs) > 3:
            found.masks = np.zeros((len(boxes), height, width), bool)
            stride, limit = self.metadata["mask_stride"], self.metadata["mask_threshold"]
            for mask, box, canvas in zip(outputs[3][wanted], boxes, found.masks, strict=True):
                if stride:
                    canvas[:] = enlarge(mask, stride, (height / h, width / w), original) > np.log(limit / (1 - limit))
                else:
                    paste(mask, box, canvas, limit)
        return found
