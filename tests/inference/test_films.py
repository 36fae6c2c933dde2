"""Films: every frame is drawn and returned, objects keep their numbers, and what is no film is named."""

import json
import re

import numpy as np
import pytest
import supervision as sv

from helpers.exported import detector
from mmlisa import cli, runtime
from mmlisa.classes import Classes
from mmlisa.inference.films import is_film, open_film, predict_film
from mmlisa.inference.pictures import predict_pictures
from mmlisa.runtime import Prediction

RATE, COUNT, SIZE = 12.5, 12, (128, 96)


@pytest.fixture
def clip(tmp_path):
    """A film whose frames have the colours 0, 20, 40, …"""
    with sv.VideoSink(str(tmp_path / "clip.mp4"), sv.VideoInfo(*SIZE, fps=RATE)) as sink:
        for index in range(COUNT):
            sink.write_frame(np.full((*SIZE[::-1], 3), 20 * index, np.uint8))
    return tmp_path / "clip.mp4"


class Moving:
    """Finds an object that moves by three pixels a frame, and another one that stands, in changing order."""

    classes = ("cat", "dog")

    def __init__(self):
        self.seen = []

    def predict(self, frame, threshold=0.3):
        index = len(self.seen)
        self.seen.append(int(frame.mean()))
        boxes = np.float32([[3 * index, 10, 3 * index + 30, 40], [60, 60, 90, 90]])
        order = [0, 1] if index % 2 else [1, 0]
        return Prediction(boxes[order], np.float32([0.9, 0.8])[order], np.int64([0, 1])[order])


@pytest.mark.parametrize("every", [1, 5])
def test_frames(clip, tmp_path, every):
    model = Moving()
    film, classes = open_film(str(clip), every), Classes({"classes": ("cat", "dog")})
    found = [*predict_film(model, film, tmp_path / "out.mp4", classes)]
    taken = range(0, COUNT, every)
    np.testing.assert_allclose(model.seen, [20 * index for index in taken], atol=8)  # the codec rounds
    assert [second for second, _ in found] == pytest.approx([index / RATE for index in taken])
    info = sv.VideoInfo.from_video_path(str(tmp_path / "out.mp4"))
    assert (info.resolution_wh, info.fps, info.total_frames) == (SIZE, pytest.approx(RATE / every), len(taken))
    frames = [*sv.get_video_frames_generator(str(tmp_path / "out.mp4"))]
    assert frames[0].max() > 60, "boxes are drawn on a black frame"


def test_objects_keep_their_numbers(clip, tmp_path):
    found = [*predict_film(Moving(), open_film(str(clip)), tmp_path / "out.mp4", Classes(None), track=True)]
    numbers = {label: {int(one.ids[one.labels == label][0]) for _, one in found[2:]} for label in (0, 1)}
    assert [len(each) for each in numbers.values()] == [1, 1]
    assert numbers[0] != numbers[1]
    assert -1 not in numbers[0] | numbers[1]


@pytest.mark.parametrize(
    ("name", "expected"), [("a.MP4", True), ("0", True), ("rtsp://host/stream", True), ("a.png", False), ("a", False)]
)
def test_what_is_a_film(name, expected):
    assert is_film(name) is expected


def test_the_command_takes_folders_of_images_and_films(clip, noise, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    model = detector(tmp_path / "model.onnx")
    folder = tmp_path / "inputs"
    folder.mkdir()
    clip.rename(folder / "clip.mp4")
    (folder / "noise.png").write_bytes(noise.read_bytes())
    cli.main(["infer", str(model), str(folder), "--out-dir", "out", "--json", "found.json", "--track", "--every", "4"])
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"clip.mp4", "noise.png"}
    film, image = json.loads((tmp_path / "found.json").read_text())
    assert [frame["second"] for frame in film["frames"]] == [0, 0.32, 0.64]
    assert film["frames"][-1]["instances"][0].keys() >= {"bbox", "id"}
    assert "instances" in image
    assert "3 frames" in capsys.readouterr().out


def test_a_film_that_cannot_be_opened(tmp_path):
    (tmp_path / "damaged.mp4").write_bytes(b"no film")
    for name in (tmp_path / "damaged.mp4", tmp_path / "missing.mp4"):
        with pytest.raises(runtime.InputError, match=name.name):
            open_film(str(name))


def test_a_film_that_ends_early_says_so(clip, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sv, "get_video_frames_generator", lambda *_, **__: iter([np.zeros((96, 128, 3), np.uint8)] * 5))
    predict_pictures(Moving(), [str(clip)], tmp_path / "out")
    assert re.search(f"5 frames.*states {COUNT}", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("words", "name"), [(["--format", "coco"], "clip.mp4"), (["--track"], "film"), (["--every", "2"], "film")]
)
def test_options_are_refused_before_the_work(clip, noise, tmp_path, capsys, words, name):
    """A film in a folder, and pictures alone."""
    model = detector(tmp_path / "model.onnx")
    (tmp_path / "inputs").mkdir()
    if name == "clip.mp4":
        clip.rename(tmp_path / "inputs" / "clip.mp4")
    (tmp_path / "inputs" / "noise.png").write_bytes(noise.read_bytes())
    with pytest.raises(SystemExit):
        cli.main(["infer", str(model), str(tmp_path / "inputs"), "--out-dir", str(tmp_path / "out"), *words])
    assert name in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
