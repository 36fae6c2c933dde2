"""Every kind of head, exported with free sizes and run in onnxruntime by the runtime, equals the libraries' own ``predict``."""

import json

import numpy as np
import pytest
import torch

from helpers.whole_models import DETECTORS, build, image, predict
from mmlisa.deploy import runtime
from mmlisa.deploy.export import EXAMPLE, describe, export, largest_difference
from mmlisa.deploy.results import Prepare, Results, WithResults
from mmlisa.training.config import load_config

pytest.importorskip("onnxruntime")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(torch.__version__ < "2.8", reason="exports need PyTorch 2.8, and say so"),
]
SIZES = [EXAMPLE, (101, 203), (224, 96)]
SEGMENTORS = ["semantic_fpn_hylisanet", "upernet_flatten_swin", "mask2former_flatten_cswin"]
FIXED = ("dino_ivit", "mask2former_flatten_cswin")  # their graphs keep the size of the example


def write(name: str, model, out, **options) -> WithResults:
    """Export a model that takes pixels and resizes nothing."""
    module = WithResults(Prepare(model, uint8=True), Results(model))
    metadata = describe(load_config(f"{name}_demo.py"), module, {})
    export(module, out, metadata=metadata | {"mmlisa_steps": "[]"}, **options)
    return module


def pixels(size) -> np.ndarray:
    """``[H, W, 3]``, RGB, uint8."""
    return image(size)[0].permute(1, 2, 0).numpy().astype(np.uint8)


@pytest.mark.parametrize("name", DETECTORS)
def test_detectors(name, tmp_path):
    model = build(name, light=True)
    fixed = name in FIXED
    sizes = SIZES[:1] if fixed else SIZES
    expected = [predict(model, "mmdet", size).pred_instances for size in sizes]
    write(name, model, tmp_path / "model.onnx", size=EXAMPLE, dynamic=not fixed)
    exported = runtime.load(tmp_path / "model.onnx")
    assert exported.shape[0] == 1, "the number of boxes differs between images"
    for size, theirs in zip(sizes, expected, strict=True):
        found = exported.predict(pixels(size), 0.0)
        assert len(found.boxes) == len(theirs) >= 20
        assert theirs.bboxes.std() > 5  # against the tolerance
        np.testing.assert_allclose(found.scores, theirs.scores, atol=1e-4)
        # Detections of equal scores may change places.
        distance = np.abs(found.boxes[:, None] - theirs.bboxes.numpy()).max(axis=2)
        distance += np.abs(found.scores[:, None] - theirs.scores.numpy()) * 1e3
        distance += found.labels[:, None] != theirs.labels.numpy()
        if name.startswith("picodet") and size != EXAMPLE:
            continue  # its scores are almost equal there, and either of two boxes may be the better one
        share = 0.9 if name.startswith("picodet") else 1
        assert (distance.min(axis=1) < 0.1).mean() >= share, size
        assert (distance.min(axis=0) < 0.1).mean() >= share, size
        assert (found.masks is None) == ("masks" not in theirs)
        if found.masks is not None:
            masks = np.asarray(theirs.masks)[distance.argmin(axis=1)]
            assert (masks != found.masks).sum() <= 0.01 * masks.sum()
            # The mean of a cascade's three random heads stays below the threshold.
            assert masks.any() or name.startswith("cascade")


@pytest.mark.parametrize("name", FIXED)
def test_free_sizes_are_refused(name, tmp_path):
    with pytest.raises(ValueError, match=r"DINO, .* and Mask2Former keep the size of the example; take --size H W"):
        write(name, build(name, light=True), tmp_path / "model.onnx", size=EXAMPLE, dynamic=True)


@pytest.mark.parametrize("name", FIXED)
def test_a_checkpoint_fits_a_model_that_is_prepared_for_export(name):
    model = build(name, light=True)
    names = list(model.state_dict())
    Results(model)
    assert sorted(model.state_dict()) == sorted(names)


@pytest.mark.parametrize("name", SEGMENTORS)
def test_segmentors(name, tmp_path):
    model = build(name, light=True)
    sizes = SIZES[:1] if name in FIXED else SIZES
    expected = [predict(model, "mmseg", size) for size in sizes]
    write(name, model, tmp_path / "model.onnx", size=EXAMPLE, dynamic=name not in FIXED)
    exported = runtime.load(tmp_path / "model.onnx")
    for size, theirs in zip(sizes, expected, strict=True):
        prepared, _ = exported.prepare(pixels(size))
        (logits,) = exported.run(np.concatenate([prepared, prepared[..., ::-1], prepared]))
        logits = logits[..., : size[0], : size[1]]
        np.testing.assert_allclose(logits[0], theirs.seg_logits.data, atol=1e-4 * theirs.seg_logits.data.abs().max())
        np.testing.assert_allclose(logits[2], logits[0], atol=1e-5)
        assert np.abs(logits[1] - logits[0]).max() > 1e-2 * np.abs(logits[0]).max()
        segmentation = exported.predict(pixels(size)).segmentation
        assert (segmentation == theirs.pred_sem_seg.data[0].numpy()).mean() > 0.999


@pytest.mark.parametrize("suffix", [".onnx", ".pt2"])
def test_a_segmentor_that_pads_takes_any_number_of_images(suffix, tmp_path):
    model, out = build(SEGMENTORS[0], light=True), tmp_path / f"model{suffix}"
    model.data_preprocessor.test_cfg = dict(size_divisor=32)
    theirs = predict(model, "mmseg", (96, 160)).seg_logits.data
    module = write(SEGMENTORS[0], model, out, size=EXAMPLE, dynamic=True)
    pictures = torch.cat([image((96, 160)), image((96, 160)).flip(3), image((96, 160))]).to(torch.uint8)
    if suffix == ".onnx":
        found = torch.from_numpy(runtime.load(out).run(pictures.numpy())[0])
    else:
        found = torch.export.load(out).module()(pictures)[0]
    tolerance = 1e-4 * theirs.abs().max()
    torch.testing.assert_close(found[::2], torch.stack([theirs, theirs]), rtol=0, atol=tolerance)
    assert (found[1] - theirs).abs().max() > 100 * tolerance
    assert largest_difference(module, out, (224, 96)) < 1e-4


def test_image_classifiers(tmp_path):
    model = build("classifier_hylisanet")  # the maps of the light backbone hardly depend on the image
    expected = [predict(model, "mmpretrain", size).pred_score.numpy() for size in SIZES]
    write("classifier_hylisanet", model, tmp_path / "model.onnx", size=EXAMPLE, dynamic=True)
    exported = runtime.load(tmp_path / "model.onnx")
    for size, theirs in zip(SIZES, expected, strict=True):
        np.testing.assert_allclose(exported.predict(pixels(size)).probabilities, theirs, atol=1e-4)
        prepared, _ = exported.prepare(pixels(size))
        np.testing.assert_allclose(exported.run(np.concatenate([prepared] * 3))[0], [theirs] * 3, atol=1e-4)
    assert np.abs(expected[0] - expected[1]).max() > 1e-3  # against the tolerance


def test_video_classifiers(tmp_path):
    model = build("video_hylisanet")
    clips = torch.rand(3, 1, 3, 8, 48, 48) * 255  # three videos of one view
    with torch.no_grad():
        inputs = model.data_preprocessor(dict(inputs=list(clips.flip(2).to(torch.uint8))))["inputs"]
        expected = torch.stack([sample.pred_score for sample in model(inputs, mode="predict")])
    write("video_hylisanet", model, tmp_path / "model.onnx", size=(8, 48, 48))
    exported = runtime.load(tmp_path / "model.onnx")
    assert exported.shape[1:] == [3, 8, 48, 48]
    (found,) = exported.run(clips[:, 0].to(torch.uint8).numpy())
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert expected.std(dim=0).max() > 1e-3


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", ["retinanet_flatten_swin", "semantic_fpn_hylisanet", "classifier_hylisanet"])
def test_programs_of_pytorch(name, dynamic, tmp_path):
    out = tmp_path / "model.pt2"
    module = write(name, build(name, light=True), out, size=EXAMPLE, dynamic=dynamic)
    extra = {"mmlisa_task": ""}
    torch.export.load(out, extra_files=extra)
    assert json.loads(extra["mmlisa_task"]) == module[1].task
    for size in (EXAMPLE, (192, 320)) if dynamic else (EXAMPLE,):
        assert largest_difference(module, out, size) < 1e-5
