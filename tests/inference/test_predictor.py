"""Checkpoints have the interface of exported files, which run in MMEngine's runner."""

from copy import deepcopy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from mmdet.registry import TRANSFORMS
from mmengine.registry import init_default_scope
from mmengine.structures import BaseDataElement

from helpers.exported import detector
from mmlisa import runtime
from mmlisa.datasets.demo import make_demo
from mmlisa.inference.load import DEMO, DEMO_CONFIG
from mmlisa.inference.predictor import ExportedModel, Predictor, check_exported_classes, exported_config
from mmlisa.training.config import load_config
from mmlisa.training.runner import build_runner


def test_a_checkpoint_has_the_interface_of_an_exported_file(model, noise):
    found = model.predict(noise, score_threshold=0.0)
    assert found.boxes.shape == (len(found.scores), 4)
    assert found.masks.shape == (len(found.scores), 150, 190)
    assert len(found.scores) > 2
    middle = float(np.median(found.scores))
    assert len(model.predict(noise, middle).scores) == (found.scores >= middle).sum()
    from_array = model.predict(runtime.read_image(noise), 0.0)
    np.testing.assert_array_equal(from_array.boxes, found.boxes)


def test_lists_and_iterators(model, noise):
    """Of two sizes: each prediction is that of its image alone."""
    whole = runtime.read_image(noise)
    images = [whole, whole[:, ::-1], whole[:90], whole]
    expected = [model.predict(image, 0.0) for image in images]
    for found in (model.predict(images, 0.0, batch=2), model.predict(iter(images), 0.0)):
        for one, other in zip(found, expected, strict=True):
            assert len(one.boxes) == len(other.boxes) > 2
            np.testing.assert_allclose(one.scores, other.scores, atol=1e-5)
            np.testing.assert_allclose(one.boxes[0], other.boxes[0], atol=1e-2)


def test_an_open_file_is_one_image(model, noise):
    with open(noise, "rb") as file:
        assert len(model.predict(file, 0.0).boxes) == len(model.predict(noise, 0.0).boxes)


@pytest.mark.parametrize("content", [None, b"", b"no image"])
def test_a_file_that_is_no_image_is_named(model, tmp_path, content):
    if content is not None:
        (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(runtime.InputError, match=r"a\.png"):
        model.predict(tmp_path / "a.png")
    with pytest.raises(runtime.InputError, match="address"):
        model.predict("http://127.0.0.1/a.png")


def test_a_checkpoint_of_another_number_of_classes_is_refused(demo):
    cfg = deepcopy(demo[0])
    cfg.merge_from_dict({"model.roi_head.bbox_head.num_classes": 3, "model.roi_head.mask_head.num_classes": 3})
    with pytest.raises(ValueError, match=r"fc_cls\.weight"):
        Predictor(cfg, str(demo[1] / "random.pth"))


def test_a_new_style_config_holds_classes_instead_of_names(demo, noise):
    cfg = deepcopy(demo[0])
    init_default_scope(cfg.default_scope)
    for step in cfg.test_dataloader.dataset.pipeline:
        step.type = TRANSFORMS.get(step.type)
    assert len(Predictor(cfg, str(demo[1] / "random.pth"), device="cpu").predict(noise, 0.0).boxes) > 2


def test_an_exported_detector_is_evaluated_with_all_its_boxes(noise, tmp_path):
    """Not only with those that a picture shows: an AP counts boxes of low scores, too."""
    model = ExportedModel(str(detector(tmp_path / "model.onnx")))
    sample = BaseDataElement(metainfo=dict(img_path=str(noise)))
    (found,) = model.test_step({"inputs": [torch.zeros(3, 8, 8)], "data_samples": [sample]})
    assert found.pred_instances.scores.tolist() == pytest.approx([0.9, 0.2])


def test_a_data_preprocessor_beside_the_model_is_not_passed_to_an_exported_file(tmp_path):
    cfg = load_config("classifier_hylisanet_demo.py", work_dir=str(tmp_path))
    cfg.data_preprocessor = cfg.model.pop("data_preprocessor")
    runner = build_runner(exported_config(cfg, detector(tmp_path / "model.onnx")), verbose=False)
    assert type(runner.model) is ExportedModel
    assert cfg.data_preprocessor is not None, "the config itself stays"


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (("cat", "dog"), None),
        (("dog", "cat"), "label 0 is 'cat' in the file and 'dog' in the test data"),
        (("cat",), "label 1 is 'dog' in the file and None in the test data"),
        (("cat", "dog", "cow"), "label 2 is None in the file"),
        (None, "not known"),
    ],
)
def test_a_file_of_other_classes_than_the_test_data_is_refused(classes, message, tmp_path):
    notes, model = [], ExportedModel(str(detector(tmp_path / "model.onnx")))
    data = SimpleNamespace(dataset=SimpleNamespace(metainfo=dict(classes=classes)))
    runner = SimpleNamespace(model=model, test_dataloader=data, logger=SimpleNamespace(warning=notes.append))
    if classes and message:
        with pytest.raises(ValueError, match=message):
            check_exported_classes(runner)
    else:
        check_exported_classes(runner)
    assert len(notes) == (classes is None)


@pytest.mark.nightly
def test_the_shipped_file_has_the_accuracy_of_its_checkpoint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_demo(tmp_path / "data" / "demo", num_images={"train": 1, "val": 24})
    cfg = load_config(DEMO_CONFIG, work_dir="run")
    cfg.load_from = str(DEMO / "model.pth")
    expected, found = (
        build_runner(each, whole=True, verbose=False).test()
        for each in (cfg, exported_config(cfg, DEMO / "model.onnx"))
    )
    assert found.keys() == expected.keys()
    for metric in ("coco/bbox_mAP", "coco/segm_mAP"):
        assert expected[metric] > 0.5
        assert found[metric] == pytest.approx(expected[metric], abs=0.002), metric
