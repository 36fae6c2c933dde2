"""Predictions on pictures: all that can be read are done, the others named, nothing is overwritten."""

import json
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace

import cv2
import mmcv
import numpy as np
import pytest
import torch
from mmdet.registry import TRANSFORMS
from mmengine.model import BaseModel
from mmengine.registry import HOOKS, MODELS, init_default_scope
from mmengine.structures import BaseDataElement, InstanceData
from mmpretrain.structures import DataSample
from PIL import Image
from pycocotools.mask import decode

from helpers.exported import BOX, detector, write_model
from mmlisa import config_path
from mmlisa.datasets.demo_objects import CLASSES
from mmlisa.deploy import inference, runtime
from mmlisa.deploy.export import reading_steps
from mmlisa.deploy.inference import (
    ExportedModel,
    Loaded,
    Predictor,
    TiledPredictor,
    exported_config,
    find_config,
    predict_pictures,
)
from mmlisa.training.config import load_config
from mmlisa.training.runner import build_runner
from mmlisa.video import reading
from mmlisa.visualization.overlays import LONGER_SIDE, Classes


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The demo config, a checkpoint of it with random weights, and a picture."""
    folder = tmp_path_factory.mktemp("inference")
    cfg = load_config(config_path("mask_rcnn_hylisanet_demo.py"))
    init_default_scope(cfg.default_scope)
    torch.save({"state_dict": MODELS.build(cfg.model).state_dict()}, folder / "random.pth")
    noise = np.random.default_rng(0).integers(0, 255, (150, 190, 3), dtype=np.uint8)
    Image.fromarray(noise).save(folder / "noise.jpg")
    return cfg, folder


def predict(demo, out, *names, **options):
    cfg, folder = demo
    return list(
        predict_pictures(cfg, str(folder / "random.pth"), [str(folder / name) for name in names], out, **options)
    )


def test_picture_with_boxes(demo, tmp_path):
    ((source, target, summary, result),) = predict(demo, tmp_path / "out", "noise.jpg", score_threshold=0.0)
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


@pytest.mark.parametrize("loader", [None, dict(dataset=dict(type="a"))])
@pytest.mark.parametrize(
    "use",
    [
        lambda cfg: next(predict_pictures(cfg, "none.pth", [], Path())),
        lambda cfg: Predictor(cfg, "none.pth"),
        reading_steps,
    ],
)
def test_a_config_without_test_images_is_named(use, loader, tmp_path):
    (tmp_path / "train_only.py").write_text(f"model = dict()\ntest_dataloader = {loader}")
    cfg = load_config(str(tmp_path / "train_only.py"))
    with pytest.raises(ValueError, match=r"train_only\.py' has no test_dataloader with a pipeline.*; add one"):
        use(cfg)


def test_bad_images_do_not_end_the_rest(demo, tmp_path):
    folder = demo[1]
    whole = (folder / "noise.jpg").read_bytes()
    (folder / "cut.jpg").write_bytes(whole[:900])
    found = predict(demo, tmp_path / "out", "none.jpg", "random.pth", "cut.jpg", "noise.jpg")
    assert [one.target and one.target.name for one in found] == [None, None, None, "noise.png"]
    for one, reason in zip(found, ("does not exist", "cannot be read", "cannot be read"), strict=False):
        assert f"{str(one.source)!r} {reason}" in one.summary
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["noise.png"]


def test_extreme_shapes_do_not_end_the_rest(demo, tmp_path):
    for name, size in {"a_thin": (3000, 2), "b_low": (2, 3000), "c_pixel": (1, 1)}.items():
        Image.new("RGB", size).save(tmp_path / f"{name}.png")
    (tmp_path / "d_last.jpg").write_bytes((demo[1] / "noise.jpg").read_bytes())
    done = predict(demo, tmp_path / "out", tmp_path)
    assert [each.source.stem for each in done] == ["a_thin", "b_low", "c_pixel", "d_last"]
    assert done[-1].target is not None
    for each in done:
        assert each.target is not None or f"{each.source} cannot be processed" in each.summary


def test_a_folder_of_class_folders(demo, tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.jpg").write_bytes((demo[1] / "noise.jpg").read_bytes())
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "read.txt").touch()
    done = predict(demo, tmp_path / "out", tmp_path)
    assert [str(each.source.relative_to(tmp_path)) for each in done] == ["cat/1.jpg", "dog/1.jpg"]
    assert len({each.target for each in done}) == 2


def test_a_folder_is_read_in_the_order_of_its_names(tmp_path):
    names = [f"{number:02d}.jpg" for number in range(30)]
    for name in sorted(names, key=lambda name: name[::-1], reverse=True):
        (tmp_path / name).touch()
    assert [path.name for path in inference._expand(tmp_path)] == names


@pytest.mark.parametrize("folder", ["", "cat"])
def test_hidden_files_are_not_inputs(folder, tmp_path):
    for name in (f"{folder}/1.jpg", f"{folder}/._1.jpg", "__MACOSX/._1.jpg", ".thumbnails/1.jpg"):
        (tmp_path / name.strip("/")).parent.mkdir(exist_ok=True)
        (tmp_path / name.strip("/")).touch()
    assert inference._expand(tmp_path) == [tmp_path / folder / "1.jpg"]


def test_hidden_files_are_neither_videos_nor_frames(tmp_path):
    for name in ("a.mp4", "._a.mp4", "frames/1.jpg", "frames/._1.jpg", "__MACOSX/._a.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert inference._expand_videos(tmp_path) == [tmp_path / "a.mp4", tmp_path / "frames"]
    assert reading.count_frames(tmp_path / "frames") == 1


def test_an_empty_folder_is_named(demo, tmp_path):
    (demo[1] / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="empty holds no image"):
        predict(demo, tmp_path / "out", "empty")
    assert not (tmp_path / "out").exists()


def test_inputs_of_one_stem_and_the_inputs_themselves_are_not_overwritten(demo, tmp_path):
    image = Image.open(demo[1] / "noise.jpg")
    inputs = [tmp_path / name for name in ("a.png", "b/a.jpg", "b/a.bmp", "a_2.jpg")]
    for path in inputs:
        path.parent.mkdir(exist_ok=True)
        image.save(path)
    before = inputs[0].read_bytes()
    found = list(predict_pictures(demo[0], str(demo[1] / "random.pth"), [*map(str, inputs), str(inputs[0])], tmp_path))
    assert [one.target.name for one in found] == ["a_2.png", "a_3.png", "a_4.png", "a_2_2.png"]
    assert inputs[0].read_bytes() == before


def test_sizes_and_modes(demo, tmp_path):
    folder, rng = demo[1] / "modes", np.random.default_rng(0)
    folder.mkdir()
    cv2.imwrite(str(folder / "tiny.png"), rng.integers(0, 255, (9, 12, 3), dtype=np.uint8))
    cv2.imwrite(str(folder / "gray.png"), rng.integers(0, 255, (60, 80), dtype=np.uint8))
    cv2.imwrite(str(folder / "deep.png"), rng.integers(0, 65535, (60, 80), dtype=np.uint16))
    cv2.imwrite(str(folder / "alpha.png"), rng.integers(0, 255, (60, 80, 4), dtype=np.uint8))
    Image.new("P", (80, 60)).save(folder / "palette.png")
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    Image.new("RGB", (80, 60)).save(folder / "turned.jpg", exif=exif)
    found = predict(demo, tmp_path / "out", "modes")
    shapes = {one.target.stem: cv2.imread(str(one.target), cv2.IMREAD_UNCHANGED).shape for one in found}
    others = dict.fromkeys(("tiny", "gray", "deep", "alpha", "palette"), (480, 640, 3))
    # As the model saw it: turned upright.
    assert shapes == {"turned": (640, 480, 3), **others}


def test_a_video(demo, tmp_path):
    path = demo[1] / "clip.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"MJPG"), 5, (64, 48))
    for value in (0, 100, 200):
        writer.write(np.full((48, 64, 3), [value, value // 2, 0], np.uint8))  # blue, green, red
    writer.release()
    cv2.imwrite(str(demo[1] / "frame.png"), mmcv.VideoReader(str(path))[2])
    (demo[1] / "broken.mp4").write_bytes(b"no video")
    (_, target, summary, frames), (_, none, reason, _) = predict(demo, tmp_path / "out", "clip.avi", "broken.mp4")
    (_, _, _, alone), *_ = predict(demo, tmp_path / "alone", "frame.png")
    assert frames[2] == alone
    assert target.name == "clip.mp4"
    assert summary.startswith("3 frames; in the last: ")
    assert [list(frame) for frame in frames] == [["instances"]] * 3
    video = cv2.VideoCapture(str(target))
    assert video.get(cv2.CAP_PROP_FPS) == 5
    # Each frame beneath what a random model drew on it.
    for value in (0, 100, 200):
        assert video.read()[1].mean((0, 1)) == pytest.approx([value, value // 2, 0], abs=80)
    assert none is None
    assert "broken.mp4 cannot be read" in reason


def test_a_checkpoint_of_another_number_of_classes_is_refused(demo, tmp_path):
    cfg = demo[0].copy()
    cfg.merge_from_dict({"model.roi_head.bbox_head.num_classes": 3, "model.roi_head.mask_head.num_classes": 3})
    with pytest.raises(ValueError, match=r"fc_cls\.weight is \[9, 256\] in the checkpoint and \[4, 256\] in the model"):
        list(predict_pictures(cfg, str(demo[1] / "random.pth"), [str(demo[1] / "noise.jpg")], tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_an_exported_file_in_the_place_of_a_checkpoint(demo, tmp_path):
    file = detector(tmp_path / "model.onnx")
    ((_, target, summary, result),) = predict_pictures(None, str(file), [str(demo[1] / "noise.jpg")], tmp_path / "out")
    assert summary == "1 dog"
    assert target.is_file()
    (instance,) = result["instances"]
    scale = 190 / 81  # the longer side of the image over that of the resized one, 64x81
    assert instance["bbox"] == pytest.approx([BOX[0] * scale, BOX[1] * 150 / 64, 32 * scale, 32 * 150 / 64], abs=0.02)


def test_tiles_are_predicted_one_by_one_and_put_together(demo, tmp_path):
    pytest.importorskip("supervision")
    file = detector(tmp_path / "model.onnx", steps=[])
    options = dict(tile=100, overlap=0.0)
    ((*_, result),) = predict_pictures(None, str(file), [str(demo[1] / "noise.jpg")], tmp_path / "out", **options)
    corners = sorted(tuple(instance["bbox"][:2]) for instance in result["instances"])
    assert (8, 4) in corners
    assert len(corners) >= 2


def test_tiles_overlap_by_a_share_of_their_side(demo, tmp_path):
    pytest.importorskip("supervision")
    file = detector(tmp_path / "model.onnx", steps=[])
    options = dict(tile=100, overlap=0.5)
    ((*_, result),) = predict_pictures(None, str(file), [str(demo[1] / "noise.jpg")], tmp_path / "out", **options)
    corners = [tuple(instance["bbox"][:2]) for instance in result["instances"]]
    assert {(8, 4), (58, 4), (8, 54), (58, 54)} <= set(corners)


def test_tiles_give_what_reaches_the_threshold(demo, monkeypatch):
    """Before tiles are put together: the masks of hundreds of weak detections would take gigabytes."""
    supervision, seen = pytest.importorskip("supervision"), []

    class Slicer:
        def __init__(self, on_tile, **_):
            self.on_tile = on_tile

        def __call__(self, picture):
            seen.append(self.on_tile(picture))
            return seen[-1]

    monkeypatch.setattr(supervision, "InferenceSlicer", Slicer)
    predictor = SimpleNamespace(
        classes=CLASSES, device="cpu", score_threshold=0.5, read=None, predict=lambda loaded: (weak_and_strong(), None)
    )
    TiledPredictor(predictor, 100, 0.0).predict({"img": np.zeros((60, 80, 3), np.uint8)})
    assert seen[0].confidence.tolist() == [pytest.approx(0.9)]


def weak_and_strong():
    boxes = torch.tensor([[1.0, 2, 30, 40], [1, 2, 30, 40]])
    sample = BaseDataElement()
    sample.pred_instances = InstanceData(bboxes=boxes, scores=torch.tensor([0.4, 0.9]), labels=torch.tensor([0, 0]))
    return sample


def test_tiles_without_an_object(demo, tmp_path):
    pytest.importorskip("supervision")
    nothing = dict(boxes=np.zeros((0, 4), np.float32), scores=np.zeros(0, np.float32), labels=np.zeros(0, np.int64))
    file = write_model(tmp_path / "model.onnx", nothing, steps=[])
    ((_, target, summary, result),) = predict_pictures(
        None, str(file), [str(demo[1] / "noise.jpg")], tmp_path / "out", tile=100, overlap=0.0
    )
    assert target.is_file()
    assert (summary, result) == ("nothing found", {"instances": []})


def test_a_checkpoint_has_the_interface_of_an_exported_file(demo):
    cfg, folder = demo
    model = Loaded(Predictor(cfg, str(folder / "random.pth"), score_threshold=0.0, device="cpu"))
    found = model.predict(folder / "noise.jpg", score_threshold=0.0)
    assert found.boxes.shape == (len(found.scores), 4)
    assert found.masks.shape == (len(found.scores), 150, 190)
    assert (np.diff(found.scores) <= 0).all()
    assert len(found.scores) > 2
    middle = float(np.median(found.scores))
    assert len(model.predict(folder / "noise.jpg", middle).scores) == (found.scores >= middle).sum()
    model.predictor.score_threshold = middle
    assert len(model.predict(folder / "noise.jpg", None).scores) == (found.scores >= middle).sum()


def test_a_checkpoint_of_a_video_classifier_takes_no_image():
    model = Loaded(SimpleNamespace(takes_clips=True, classes=Classes({})))
    with pytest.raises(ValueError, match="classifies clips, not images; predict on videos with `mmlisa infer"):
        model.predict(np.zeros((8, 8, 3), np.uint8))


def test_a_picture_is_drawn_on_as_it_was_read(demo):
    """The boxes have its size; the steps of the pipeline resize it for the model."""
    cfg, folder = demo
    predictor = Predictor(cfg, str(folder / "random.pth"), device="cpu")
    _, picture = predictor.predict(predictor.read(folder / "noise.jpg"))
    np.testing.assert_array_equal(picture, runtime.read_image(folder / "noise.jpg"))


def test_a_new_style_config_holds_classes_instead_of_names(demo):
    cfg, folder = deepcopy(demo[0]), demo[1]
    init_default_scope(cfg.default_scope)
    for step in cfg.test_dataloader.dataset.pipeline:
        step.type = TRANSFORMS.get(step.type)
        assert isinstance(step.type, type)
    predictor = Predictor(cfg, str(folder / "random.pth"), score_threshold=0.0, device="cpu")
    sample, _ = predictor.predict(predictor.read(folder / "noise.jpg"))
    assert len(sample.pred_instances) > 2


def test_a_model_of_grey_images(demo, tmp_path):
    cfg, file = deepcopy(demo[0]), demo[1] / "noise.jpg"
    cfg.test_dataloader.dataset.pipeline[0].color_type = "grayscale"
    cfg.model.backbone.in_channels = 1
    cfg.model.data_preprocessor.update(mean=[127.5], std=[60.0], bgr_to_rgb=False)
    init_default_scope(cfg.default_scope)
    torch.save({"state_dict": MODELS.build(cfg.model).state_dict()}, tmp_path / "grey.pth")
    predictor = Predictor(cfg, str(tmp_path / "grey.pth"), score_threshold=0.0, device="cpu")
    sample, picture = predictor.predict(predictor.read(file))
    grey = cv2.imread(str(file), cv2.IMREAD_GRAYSCALE)
    np.testing.assert_array_equal(picture, np.stack([grey] * 3, axis=2))
    assert predictor.draw(sample, picture).shape[1] == LONGER_SIDE
    assert len(Loaded(predictor).predict(file).scores) > 2, "an array has colours"


def test_the_config_beside_a_checkpoint(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"has 0 configs; name the one of 'best\.pth'"):
        find_config(tmp_path / "best.pth")
    (tmp_path / "other.py").touch()
    assert find_config(tmp_path / "best.pth").name == "other.py"
    (tmp_path / f"{tmp_path.name}.py").touch()
    assert find_config(tmp_path / "best.pth").stem == tmp_path.name
    monkeypatch.chdir(tmp_path)
    assert find_config(Path("best.pth")).stem == tmp_path.name


def test_scores_are_listed_best_first():
    predictor = Predictor.__new__(Predictor)
    predictor.classes, predictor.score_threshold = Classes({"classes": "abc"}), 0.3
    found = predictor.describe(DataSample().set_pred_score(torch.tensor([0.1, 0.7, 0.2])))
    assert [(entry["category"], entry["score"]) for entry in found["scores"]] == [("b", 0.7), ("c", 0.2), ("a", 0.1)]


@pytest.mark.parametrize(("uint8", "channels"), [(False, "RGB"), (True, "RGB"), (False, "BGR")])
def test_an_exported_video_classifier_gets_what_its_file_wants(uint8, channels):
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


def test_an_exported_detector_is_evaluated_with_all_its_boxes(demo, tmp_path):
    """Not only with those that a picture shows: an AP counts boxes of low scores, too."""
    model = ExportedModel(str(detector(tmp_path / "model.onnx")))
    sample = BaseDataElement(metainfo=dict(img_path=str(demo[1] / "noise.jpg")))
    (found,) = model.test_step({"inputs": [torch.zeros(3, 8, 8)], "data_samples": [sample]})
    assert found.pred_instances.scores.tolist() == pytest.approx([0.9, 0.2])


def test_an_exported_file_is_tested_with_a_config_that_has_its_data_preprocessor_beside_the_model(tmp_path):
    cfg = load_config("classifier_hylisanet_demo.py", work_dir=str(tmp_path))
    cfg.data_preprocessor = cfg.model.pop("data_preprocessor")
    runner = build_runner(exported_config(cfg, detector(tmp_path / "model.onnx")), 1.0, verbose=False)
    assert type(runner.model) is ExportedModel
    assert cfg.data_preprocessor is not None, "the config itself stays"


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (
            ("dog", "cat"),
            r"model\.onnx' has 2 classes and test_dataloader\.dataset has 2; label 0 is 'cat' .* and 'dog'",
        ),
        (("cat",), r"has 2 classes and test_dataloader\.dataset has 1; label 1 is 'dog' in the file and '\(none\)' in"),
        (("cat", "dog", "cow"), r"has 3; label 2 is '\(none\)' in the file and 'cow' in the data; test it with"),
    ],
)
def test_an_exported_file_is_not_tested_on_other_classes(classes, message, tmp_path):
    cfg = exported_config(load_config("mask_rcnn_hylisanet_demo.py"), detector(tmp_path / "model.onnx"))
    data = SimpleNamespace(dataset=SimpleNamespace(metainfo=dict(classes=("cat", "dog"))))
    runner = SimpleNamespace(model=MODELS.build(cfg.model), test_dataloader=data)
    hook = HOOKS.build(cfg.custom_hooks[-1])
    hook.before_test(runner)
    data.dataset.metainfo = {}  # of unknown names
    hook.before_test(runner)
    data.dataset.metainfo = dict(classes=classes)
    with pytest.raises(ValueError, match=message):
        hook.before_test(runner)
