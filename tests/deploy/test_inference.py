"""Predictions on files: all that can be read are done, the others are named, nothing is overwritten."""

import json
from copy import deepcopy
from types import SimpleNamespace

import cv2
import mmcv
import numpy as np
import pytest
import torch
from mmdet.registry import TRANSFORMS
from mmengine.model import BaseModel
from mmengine.registry import MODELS, init_default_scope
from mmengine.structures import BaseDataElement
from PIL import Image
from pycocotools.mask import decode

import mmlisa
from helpers.exported import BOX, detector
from mmlisa import config_path
from mmlisa.datasets.demo_objects import CLASSES
from mmlisa.deploy import runtime
from mmlisa.deploy.inference import (
    ExportedModel,
    Prediction,
    Predictor,
    describe,
    exported_config,
    predict_pictures,
)
from mmlisa.training.config import load_config
from mmlisa.training.runner import build_runner
from mmlisa.visualization.overlays import LONGER_SIDE, Classes


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The demo config, and a folder with a checkpoint of it with random weights and a picture."""
    folder = tmp_path_factory.mktemp("inference")
    cfg = load_config(config_path("mask_rcnn_hylisanet_demo.py"))
    init_default_scope(cfg.default_scope)
    torch.save({"state_dict": MODELS.build(cfg.model).state_dict()}, folder / "random.pth")
    noise = np.random.default_rng(0).integers(0, 255, (150, 190, 3), dtype=np.uint8)
    Image.fromarray(noise).save(folder / "noise.jpg")
    return cfg, folder


@pytest.fixture(scope="module")
def model(demo):
    return Predictor(demo[0], str(demo[1] / "random.pth"), device="cpu")


@pytest.fixture
def noise(demo):
    return demo[1] / "noise.jpg"


def predict(model, out, *names, **options):
    return list(predict_pictures(model, [str(name) for name in names], out, **options))


def test_a_picture_with_objects(model, noise, tmp_path):
    ((source, target, summary, result),) = predict(model, tmp_path / "out", noise, score_threshold=0.0)
    assert (source.name, target.name) == ("noise.jpg", "noise.png")
    with Image.open(target) as picture:  # enlarged
        assert picture.size == (LONGER_SIDE, 2 * round(150 * LONGER_SIDE / 190 / 2))
    counts = [part.split(" ") for part in summary.split(", ")]
    assert sum(int(number) for number, _ in counts) == 100
    assert {name for _, name in counts} <= set(CLASSES)
    instances = json.loads(json.dumps(result))["instances"]
    scores = [instance["score"] for instance in instances]
    assert scores == sorted(scores, reverse=True)
    assert all(CLASSES[instance["category_id"]] == instance["category"] for instance in instances)
    # As pycocotools reads them, masks lie in the boxes up to rounding.
    for instance in instances[:5]:
        mask = decode(instance["segmentation"])
        assert mask.shape == (150, 190)
        x, y, width, height = instance["bbox"]
        mask[max(int(y) - 1, 0) : int(y + height) + 2, max(int(x) - 1, 0) : int(x + width) + 2] = 0
        assert not mask.any()


def test_the_other_tasks_as_data():
    classes = Classes({"classes": "abc"})
    found = describe(Prediction(probabilities=np.float32([0.1, 0.7, 0.2])), classes)
    assert [(entry["category"], entry["score"]) for entry in found["scores"]] == [("b", 0.7), ("c", 0.2), ("a", 0.1)]
    found = describe(Prediction(segmentation=np.int64([[2, 2], [2, 0]])), classes)
    assert [(entry["category"], entry["share"]) for entry in found["segments"]] == [("c", 0.75), ("a", 0.25)]


def test_a_checkpoint_has_the_interface_of_an_exported_file(model, noise):
    found = model.predict(noise, score_threshold=0.0)
    assert found.boxes.shape == (len(found.scores), 4)
    assert found.masks.shape == (len(found.scores), 150, 190)
    assert len(found.scores) > 2
    middle = float(np.median(found.scores))
    assert len(model.predict(noise, middle).scores) == (found.scores >= middle).sum()
    from_array = model.predict(runtime.read_image(noise), 0.0)
    np.testing.assert_array_equal(from_array.boxes, found.boxes)


def test_a_checkpoint_without_a_config_executes_nothing(tmp_path):
    """B12: a folder of a stranger may hold a Python file beside the checkpoint."""
    (tmp_path / "stranger.py").write_text("raise SystemExit")
    with pytest.raises(ValueError, match=r"config.*stranger\.py"):
        mmlisa.load(tmp_path / "best.pth")


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


# --- files -------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def quick(tmp_path):
    """An exported file that always finds the same object."""
    return runtime.load(detector(tmp_path / "model.onnx"))


def test_an_exported_file_in_the_place_of_a_checkpoint(quick, noise, tmp_path):
    ((_, target, summary, result),) = predict(quick, tmp_path / "out", noise)
    assert summary == "1 dog"
    assert target.is_file()
    (instance,) = result["instances"]
    scale = 190 / 81  # the longer side of the image over that of the resized one, 64x81
    assert instance["bbox"] == pytest.approx([BOX[0] * scale, BOX[1] * 150 / 64, 32 * scale, 32 * 150 / 64], abs=0.02)


def test_inputs_that_cannot_be_read_do_not_end_the_rest(model, demo, noise, tmp_path):
    Image.new("RGB", (3000, 2)).save(tmp_path / "thin.png")
    names = [demo[1] / "none.jpg", demo[1] / "random.pth", tmp_path / "thin.png", noise]
    *failed, thin, last = predict(model, tmp_path / "out", *names)
    assert [one.target for one in failed] == [None, None]
    assert all(str(one.source) in one.summary for one in failed)
    assert thin.target or "thin.png" in thin.summary
    assert last.target.name == "noise.png"


def test_a_folder_is_read_with_its_folders_in_the_order_of_names(quick, noise, tmp_path):
    names = ["cat/1.jpg", "cat/2.jpg", "dog/1.jpg"]
    for name in [*reversed(names), "notes.txt"]:
        (tmp_path / "in" / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / "in" / name).write_bytes(noise.read_bytes())
    done = predict(quick, tmp_path / "out", tmp_path / "in")
    assert [one.source.relative_to(tmp_path / "in").as_posix() for one in done] == names
    assert len({one.target for one in done}) == 3


def test_inputs_of_one_stem_and_the_inputs_themselves_are_not_overwritten(quick, noise, tmp_path):
    image = Image.open(noise)
    inputs = [tmp_path / name for name in ("a.png", "b/a.jpg", "b/a.bmp", "a_2.jpg")]
    for path in inputs:
        path.parent.mkdir(exist_ok=True)
        image.save(path)
    before = inputs[0].read_bytes()
    found = predict(quick, tmp_path, *inputs, inputs[0])
    assert [one.target.name for one in found] == ["a_2.png", "a_3.png", "a_4.png", "a_2_2.png"]
    assert inputs[0].read_bytes() == before


def test_a_video(model, tmp_path):
    path = tmp_path / "clip.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"MJPG"), 5, (64, 48))
    for value in (0, 100, 200):
        writer.write(np.full((48, 64, 3), [value, value // 2, 0], np.uint8))  # blue, green, red
    writer.release()
    cv2.imwrite(str(tmp_path / "frame.png"), mmcv.VideoReader(str(path))[2])
    (tmp_path / "broken.mp4").write_bytes(b"no video")
    inputs = [path, tmp_path / "broken.mp4", tmp_path / "frame.png"]
    (_, target, _, frames), broken, (*_, alone) = predict(model, tmp_path / "out", *inputs)
    assert len(frames) == 3
    assert frames[2] == alone
    video = cv2.VideoCapture(str(target))
    assert video.get(cv2.CAP_PROP_FPS) == 5
    # Each frame beneath what a random model drew on it.
    for value in (0, 100, 200):
        assert video.read()[1].mean((0, 1)) == pytest.approx([value, value // 2, 0], abs=80)
    assert broken.target is None
    assert "broken.mp4" in broken.summary


# --- exported files in MMEngine's runner ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("uint8", "channels"), [(False, "RGB"), (True, "BGR")])
def test_an_exported_video_classifier_gets_the_input_of_its_file(uint8, channels):
    model, seen = ExportedModel.__new__(ExportedModel), []
    BaseModel.__init__(model)
    model.exported = SimpleNamespace(
        task="video",
        metadata=dict(mean=[1] * 3, std=[2] * 3, uint8=uint8, channels=channels),
        run=lambda clips: seen.append(clips) or [np.float32([[0.2, 0.8], [0.6, 0.4]])],
    )
    views = torch.arange(3, dtype=torch.uint8).view(1, 3, 1, 1, 1).expand(2, 3, 1, 2, 2)  # BGR
    found = model._predict(views, BaseDataElement())
    assert found.pred_score.tolist() == pytest.approx([0.4, 0.6])
    order = [2, 1, 0] if channels == "RGB" else [0, 1, 2]
    assert seen[0][0, :, 0, 0, 0].tolist() == (order if uint8 else [(value - 1) / 2 for value in order])
    assert seen[0].dtype == (np.uint8 if uint8 else np.float32)


def test_an_exported_detector_is_evaluated_with_all_its_boxes(noise, tmp_path):
    """Not only with those that a picture shows: an AP counts boxes of low scores, too."""
    model = ExportedModel(str(detector(tmp_path / "model.onnx")))
    sample = BaseDataElement(metainfo=dict(img_path=str(noise)))
    (found,) = model.test_step({"inputs": [torch.zeros(3, 8, 8)], "data_samples": [sample]})
    assert found.pred_instances.scores.tolist() == pytest.approx([0.9, 0.2])


def test_a_data_preprocessor_beside_the_model_is_not_passed_to_an_exported_file(tmp_path):
    cfg = load_config("classifier_hylisanet_demo.py", work_dir=str(tmp_path))
    cfg.data_preprocessor = cfg.model.pop("data_preprocessor")
    runner = build_runner(exported_config(cfg, detector(tmp_path / "model.onnx")), 1.0, verbose=False)
    assert type(runner.model) is ExportedModel
    assert cfg.data_preprocessor is not None, "the config itself stays"
