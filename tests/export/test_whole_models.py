"""Exported models, run in onnxruntime by the runtime, equal the libraries' own ``predict``."""

import numpy as np
import pytest
import torch

from helpers.whole_models import build, image, predict
from mmlisa import runtime
from mmlisa.export.metadata import describe
from mmlisa.export.whole import EndToEnd
from mmlisa.export.writing import EXAMPLE, write
from mmlisa.training.config import load_config

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.skipif(torch.__version__ < "2.8", reason="exports need PyTorch 2.8")
SIZES = [EXAMPLE, (101, 203), (224, 96)]
nightly = pytest.mark.nightly


def export(name: str, out, divisor: int = 1, **options) -> dict:
    """Export a model that takes pixels and resizes nothing."""
    model = build(name)
    if divisor > 1:
        model.data_preprocessor.test_cfg = dict(size_divisor=divisor)
    module = EndToEnd(model, uint8=True)
    metadata = describe(load_config(f"{name}_demo.py"), module, {})
    return write(module, out, metadata=metadata | {"mmlisa_steps": "[]"}, **options)


def pixels(size) -> np.ndarray:
    """``[H, W, 3]``, RGB, uint8."""
    return image(size)[0].permute(1, 2, 0).numpy().astype(np.uint8)


# A detector of each kind; of a fixed size, an export takes seconds.
@pytest.mark.parametrize(
    ("name", "dynamic"),
    [
        ("mask_rcnn_hylisanet", True),
        ("retinanet_flatten_swin", False),
        ("yolox_castling_esnet", False),
        ("picodet_castling_lcnet", False),
        pytest.param("picodet_castling_lcnet", True, marks=nightly),
        ("dino_ivit", False),
    ],
)
def test_detectors(name, dynamic, tmp_path):
    sizes = SIZES if dynamic else SIZES[:1]
    export(name, tmp_path / "model.onnx", size=EXAMPLE, dynamic=dynamic)
    exported, model = runtime.load(tmp_path / "model.onnx"), build(name)
    assert exported.shape[0] == 1, "the number of boxes differs between images"
    for size in sizes:
        theirs, found = predict(model, "mmdet", size).pred_instances, exported.predict(pixels(size), 0.0)
        assert len(found.boxes) == len(theirs) >= 20
        assert theirs.bboxes.std() > 5  # against the tolerance
        np.testing.assert_allclose(found.scores, theirs.scores, atol=1e-3)
        # Detections of equal scores may change places.
        distance = np.abs(found.boxes[:, None] - theirs.bboxes.numpy()).max(axis=2)
        distance += np.abs(found.scores[:, None] - theirs.scores.numpy()) * 1e2
        distance += found.labels[:, None] != theirs.labels.numpy()
        assert max(distance.min(axis=1).max(), distance.min(axis=0).max()) < 0.1, size
        assert (found.masks is None) == ("masks" not in theirs)
        if found.masks is not None:
            masks = np.asarray(theirs.masks)[distance.argmin(axis=1)]
            assert (masks != found.masks).sum() <= 0.01 * masks.sum()
            assert masks.any()


def test_a_free_size_of_dino_is_refused(tmp_path):
    with pytest.raises(ValueError, match="dynamic"):
        export("dino_ivit", tmp_path / "model.onnx", size=EXAMPLE, dynamic=True)


@pytest.mark.parametrize(
    ("name", "divisor"), [("semantic_fpn_hylisanet", 32), pytest.param("upernet_flatten_swin", 1, marks=nightly)]
)
def test_segmentors(name, divisor, tmp_path):
    export(name, tmp_path / "model.onnx", divisor, size=EXAMPLE, dynamic=True)
    exported, model = runtime.load(tmp_path / "model.onnx"), build(name)
    model.data_preprocessor.test_cfg = dict(size_divisor=divisor)
    for size in SIZES:
        theirs = predict(model, "mmseg", size)
        prepared, _ = exported.prepare(pixels(size))
        (logits,) = exported.run(np.concatenate([prepared, prepared[..., ::-1], prepared]))
        logits = logits[..., : size[0], : size[1]]
        np.testing.assert_allclose(logits[0], theirs.seg_logits.data, atol=1e-4 * theirs.seg_logits.data.abs().max())
        np.testing.assert_allclose(logits[2], logits[0], atol=1e-5)
        assert np.abs(logits[1] - logits[0]).max() > 1e-2 * np.abs(logits[0]).max()
        segmentation = exported.predict(pixels(size)).segmentation
        assert (segmentation == theirs.pred_sem_seg.data[0].numpy()).mean() > 0.999


def test_image_classifiers(tmp_path):
    export("classifier_hylisanet", tmp_path / "model.onnx", size=EXAMPLE, dynamic=True)
    exported, model = runtime.load(tmp_path / "model.onnx"), build("classifier_hylisanet")
    expected = [predict(model, "mmpretrain", size).pred_score.numpy() for size in SIZES]
    for size, theirs in zip(SIZES, expected, strict=True):
        np.testing.assert_allclose(exported.predict(pixels(size)).probabilities, theirs, atol=1e-4)
    assert np.abs(expected[0] - expected[1]).max() > 1e-3  # against the tolerance
