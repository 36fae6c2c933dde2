"""Comparison with the library that a model comes from: whole predictions, from a picture's file to its results."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cv2
import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import Compose, pseudo_collate
from torch import Tensor, nn

from mmlisa import runtime
from mmlisa.errors import UserError
from mmlisa.inference.predictor import read_sample
from mmlisa.runtime import Prediction
from mmlisa.training.config import find_test_pipeline, type_name

from .heads import NOTHING
from .whole import EndToEnd

# Sides of the pictures, in the ratio of COCO's usual scale, 1333x800.
SHORT, LONG = 480, 800
# Largest differences: of the network's input in grey levels, of a box in pixels, of a score and of a probability's logarithm.
_LEVELS, _BOX, _SCORE, _LOGARITHM = 0.01, 0.1, 1e-4, 1e-2
# Largest shares of the pixels of a map or mask, and of the detections: rounding decides between equal scores.
_PIXELS, _MASK, _DETECTIONS = 1e-3, 0.02, 0.02
# Detections without which the threshold is lowered; a quarter at a time, and left out at last.
_OBJECTS, _QUARTERS = 10, 3
_LIBRARIES = ("mmdet", "mmseg", "mmpretrain", "mmengine", "mmcv", "mmlisa", "timm", "torch", "torchvision")
_FIELDS = {"pred_instances", "pred_sem_seg", "pred_score", "pred_label"}
# RTMDet-Ins leaves the last two, from which it computed the masks.
_INSTANCES = {"bboxes", "scores", "labels", "masks", "kernels", "priors"}


@torch.no_grad()
def compare_with_library(
    cfg: Config, module: EndToEnd, metadata: dict[str, str], size: tuple[int, ...] | None
) -> tuple[str, list[Tensor]]:
    """Compare a module behind the runtime with the library's ``test_step`` behind its test pipeline, on random pictures.

    PyTorch runs both, so that both choose among the same candidates; :func:`write` compares the file with the module.

    Args:
        cfg: config with the test pipeline.
        module: its ``model`` is the library's. A detector's threshold is lowered for the comparison if it finds little.
        metadata: of the file, see :func:`describe`.
        size: H and W of the images that the file takes (T, H and W of clips), or None if they are free.

    Returns:
        A sentence that says what was compared, and the inputs ``[1, 3, H, W]`` of the network.

    Raises:
        UserError: the inputs of the network differ, or the results do.
    """
    if module.task == "video":
        return "not compared with the library: reading and prediction of videos", []
    steps = Compose([step for step in find_test_pipeline(cfg) if "LoadAnnotations" not in type_name(step)])
    threshold, inputs, seen = None, [], []
    with TemporaryDirectory() as folder:
        for path, shape in _pictures(Path(folder), size):
            if len(inputs) == 2:  # one of each orientation
                break
            run = partial(_run, module, threshold=threshold)
            exported = runtime.Model("file", metadata, [1, 3, *(size or (None, None))], run)
            try:
                prepared, _ = exported.prepare(runtime.read_image(path))
            except runtime.InputError:  # a file of fixed size does not take what the pipeline makes of the picture
                continue
            data = pseudo_collate([steps({"img_path": str(path), "img_id": 0})])
            image = torch.from_numpy(prepared)
            if not _same_input(module, data, image, size):
                continue
            if module.task == "detection" and not inputs:
                threshold = _find_threshold(module, image)
                exported.run = partial(_run, module, threshold=threshold)
            expected = _library(module, data, threshold)
            found = exported.predict(path, 0.0, tile=0)  # the library's detector inside of tiles has none
            reason = _difference(expected, found)
            summary = _summary(found)
            if reason and _are_mostly_equal(found.scores):
                summary = f"{len(found.scores)} detections of equal scores, not compared"
            elif reason:
                raise UserError(
                    f"{_owners(module.model)}: {reason} (random picture of {shape}); --raw writes the network alone"
                )
            inputs.append(image)
            seen.append(f"{shape} ({summary})")
    if not inputs:
        return f"not compared with the library: its pipeline makes no picture of {'x'.join(map(str, size or ()))}", []
    return f"the library's own prediction agrees on random pictures: {', '.join(seen)}", inputs


def _pictures(folder: Path, size: tuple[int, ...] | None) -> Iterator[tuple[Path, str]]:
    """Write pictures of structures of several sizes, one of each orientation, and one in the ratio of a fixed size."""
    generator = np.random.default_rng(0)
    sides = [(SHORT, LONG), (LONG, SHORT)]
    if size and size not in sides:
        sides.append(tuple(size))
    for height, width in sides:
        cells = [generator.random((n, n, 3)) for n in (4, 16, 64, 256)]
        layers = [cv2.resize(each, (width, height), interpolation=cv2.INTER_CUBIC) for each in cells]
        path = folder / f"{height}x{width}.jpg"
        pixels = np.clip((np.mean(layers, axis=0) - 0.5) * 2 + 0.5, 0, 1) * 255
        cv2.imwrite(str(path), pixels.astype(np.uint8))
        yield path, path.stem


def _run(module: EndToEnd, image: np.ndarray, threshold: Tensor | None) -> list[np.ndarray]:
    results = module.predict(torch.from_numpy(image), lambda x, exact=False: x, threshold)
    return [x.numpy() for x in results]


def _same_input(module: EndToEnd, data: dict[str, Any], image: Tensor, size: tuple[int, ...] | None) -> bool:
    """Return False if a file of fixed size pads what the library takes as it is; raise UserError if both differ."""
    expected = module.model.data_preprocessor(data, False)["inputs"]
    found, _ = module.preprocess(image)
    if size and any(a < b for a, b in zip(expected.shape[2:], found.shape[2:], strict=True)):
        return False
    same = expected.shape == found.shape
    if same and ((expected - found).abs() * module.preprocess.std).max() <= _LEVELS:
        return True
    if not same:
        apart = f"{list(expected.shape)} for {list(found.shape)}"
    else:
        levels = ((expected - found).abs() * module.preprocess.std).max()
        apart = f"it differs by up to {levels:.1f} grey levels"
    raise UserError(
        f"the test pipeline and {type(module.model.data_preprocessor).__name__} prepare images in another way than the "
        f"exported file ({apart}); use the library's own steps with the options of docs/export.md, or --raw"
    )


def _find_threshold(module: EndToEnd, image: Tensor) -> Tensor:
    """Return the model's threshold, or a lower one that leaves enough detections to compare."""
    for quarters in range(_QUARTERS + 1):
        threshold = module.threshold / 4**quarters
        if len(_run(module, image.numpy(), threshold)[0]) >= _OBJECTS:
            return threshold
    return torch.tensor(NOTHING)


def _library(module: EndToEnd, data: dict[str, Any], threshold: Tensor | None) -> Prediction:
    """Return the library's prediction, a detector's with another threshold."""
    model = module.model
    test_cfg = getattr(getattr(model, "roi_head", None) or getattr(model, "bbox_head", None), "test_cfg", None) or {}
    before = test_cfg.get("score_thr")
    try:
        if before is not None:
            test_cfg["score_thr"] = float(threshold)
        sample = model.test_step(data)[0]
    finally:
        if before is not None:
            test_cfg["score_thr"] = before
    names = set(sample.all_keys())
    fields = {name for name in names if name.startswith("pred_")} - _FIELDS
    fields |= set(sample.get("pred_instances", {}).keys()) - _INSTANCES
    if fields:
        raise UserError(
            f"{type(model).__name__} also predicts {', '.join(sorted(fields))}; --raw writes the network alone"
        )
    return read_sample(sample)


def _difference(expected: Prediction, found: Prediction) -> str:
    """Return in which way the library's prediction differs, or an empty string."""
    if expected.probabilities is not None and found.probabilities is not None:
        if expected.probabilities.shape == found.probabilities.shape:
            a, b = (np.log(np.maximum(each.probabilities, 1e-30)) for each in (expected, found))
            if np.abs(a - b).max() <= _LOGARITHM:
                return ""
        return "the library predicts other probabilities"
    if expected.segmentation is not None and found.segmentation is not None:
        if expected.segmentation.shape != found.segmentation.shape:
            return "the library predicts a map of another size"
        share = (expected.segmentation != found.segmentation).mean()
        return f"{share:.1%} of the pixels have another class in the library" if share > _PIXELS else ""
    if expected.boxes is None or found.boxes is None:
        return "the library predicts other kinds of results"
    return _different_detections(expected, found)


def _different_detections(expected: Prediction, found: Prediction) -> str:
    """Compare each detection with those of the other side of its label, score and box: equal scores may change places."""
    pairs = expected.labels[:, None] == found.labels
    pairs &= np.abs(expected.scores[:, None] - found.scores) <= _SCORE
    pairs &= np.abs(expected.boxes[:, None] - found.boxes).max(axis=2, initial=0) <= _BOX
    if expected.masks is not None and found.masks is not None:
        for i, j in np.argwhere(pairs):
            a, b = np.asarray(expected.masks[i]), found.masks[j]
            pairs[i, j] = (a != b).sum() <= _MASK * max((a | b).sum(), 1 / _MASK)
    elif (expected.masks is None) != (found.masks is None):
        return "the library predicts other kinds of results"
    alone = (~pairs.any(axis=1)).sum(), (~pairs.any(axis=0)).sum()
    if max(alone) <= _DETECTIONS * max(len(expected.boxes), len(found.boxes)):
        return ""
    return f"the library predicts {len(expected.boxes)} objects, {alone[0]} of them other"


def _are_mostly_equal(scores: np.ndarray | None) -> bool:
    """Return whether less than half of a detector's scores are different ones, so that the order of candidates decides."""
    return scores is not None and 2 * len(np.unique(scores)) < len(scores)


def _owners(model: nn.Module) -> str:
    """Return the classes of a model and its parts that are defined outside of the libraries, or the model's."""
    kinds = {type(part) for part in model.modules()}
    own = sorted(kind.__name__ for kind in kinds if kind.__module__.partition(".")[0] not in _LIBRARIES)
    return ", ".join(own) or type(model).__name__


def _summary(found: Prediction) -> str:
    """Return how much of a prediction there was to compare."""
    if found.boxes is not None:
        return f"{len(found.boxes)} detections"
    if found.segmentation is not None:
        return f"{len(np.unique(found.segmentation))} classes"
    return f"class {found.probabilities.argmax()}"
