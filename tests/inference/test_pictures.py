"""Predictions on files: all that can be read are done, the others are named, nothing is overwritten."""

import json

import numpy as np
import pytest
from PIL import Image
from pycocotools.mask import decode

from helpers.exported import detector
from mmlisa import runtime
from mmlisa.classes import Classes
from mmlisa.datasets.demo import CLASSES
from mmlisa.errors import UserError
from mmlisa.inference.pictures import predict_pictures, to_data
from mmlisa.runtime import Prediction
from mmlisa.visualization.overlays import LONGER_SIDE


@pytest.fixture
def quick(tmp_path):
    """An exported file that always finds the same object."""
    return runtime.load(detector(tmp_path / "model.onnx"))


def predict(model, out, *names, **options):
    return predict_pictures(model, [str(name) for name in names], out, **options)


def test_a_picture_with_objects(model, noise, tmp_path, capsys):
    (result,), _ = predict(model, tmp_path / "out", noise, score_threshold=0.0)
    assert (result["source"], result["picture"]) == (str(noise), str(tmp_path / "out" / "noise.png"))
    with Image.open(result["picture"]) as picture:  # enlarged
        assert picture.size == (LONGER_SIDE, round(150 * LONGER_SIDE / 190))
    counts = [part.split(" ") for part in capsys.readouterr().out.strip().split(": ")[1].split(", ")]
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
    found = to_data(Prediction(probabilities=np.float32([0.1, 0.7, 0.2])), classes)
    assert [(entry["category"], entry["score"]) for entry in found["scores"]] == [("b", 0.7), ("c", 0.2), ("a", 0.1)]
    found = to_data(Prediction(segmentation=np.int64([[2, 2], [2, 0]])), classes)
    assert [(entry["category"], entry["share"]) for entry in found["segments"]] == [("c", 0.75), ("a", 0.25)]


def test_inputs_that_cannot_be_read_do_not_end_the_rest(model, demo, noise, tmp_path):
    Image.new("RGB", (3000, 2)).save(tmp_path / "thin.png")
    names = [demo[1] / "none.jpg", demo[1] / "random.pth", "clip.mp4", tmp_path / "thin.png", noise]
    done, failed = predict(model, tmp_path / "out", *names)
    assert [str(name) in line for name, line in zip(names, failed, strict=False)][:3] == [True] * 3
    assert "cannot be opened" in failed[2]
    assert len(done) + len(failed) == 5
    assert done[-1]["source"] == str(noise)


@pytest.mark.parametrize("error", [RuntimeError, IndexError, AssertionError])  # CUDA's memory, faults of a user's head
def test_errors_of_models_are_not_those_of_files(error, quick, noise, tmp_path, monkeypatch):
    monkeypatch.setattr(quick, "run", lambda image: (_ for _ in ()).throw(error("out of memory")))
    with pytest.raises(error, match="out of memory"):
        predict(quick, tmp_path / "out", noise)


def test_a_folder_is_read_with_its_folders_in_the_order_of_names(quick, noise, tmp_path):
    names = ["cat/1.jpg", "cat/2.jpg", "dog/1.jpg"]
    for name in [*reversed(names), "notes.txt"]:
        (tmp_path / "in" / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / "in" / name).write_bytes(noise.read_bytes())
    done, _ = predict(quick, tmp_path / "out", tmp_path / "in")
    assert [one["source"] for one in done] == [str(tmp_path / "in" / name) for name in names]
    assert len({one["picture"] for one in done}) == 3


def test_inputs_of_one_stem_and_the_inputs_themselves_are_not_overwritten(quick, noise, tmp_path):
    image = Image.open(noise)
    inputs = [tmp_path / name for name in ("a.png", "b/a.jpg", "b/a.bmp", "a_2.jpg")]
    for path in inputs:
        path.parent.mkdir(exist_ok=True)
        image.save(path)
    before = inputs[0].read_bytes()
    done, _ = predict(quick, tmp_path, *inputs, inputs[0])
    assert [one["picture"] for one in done] == [str(tmp_path / f"a_{end}.png") for end in ("2", "3", "4", "2_2")]
    assert inputs[0].read_bytes() == before


def test_a_damaged_video_does_not_end_the_rest(quick, noise, tmp_path, monkeypatch):
    """Readers of videos raise UserError."""
    predict_one = quick.predict

    def refuse(path, *args):
        if path.stem == "a":
            raise UserError("it ends early")
        return predict_one(path, *args)

    monkeypatch.setattr(quick, "predict", refuse)
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(noise.read_bytes())
    done, failed = predict(quick, tmp_path / "out", tmp_path / "a.png", tmp_path / "b.png")
    assert "ends early" in failed[0]
    assert [one["source"] for one in done] == [str(tmp_path / "b.png")]
