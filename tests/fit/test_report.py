"""The report's numbers, against closed forms and sklearn, and its page."""

import json
import os
import pickle
import re
from base64 import b64decode
from datetime import date, datetime

import cv2
import numpy as np
import pytest
import torch
from pycocotools import mask
from sklearn.metrics import confusion_matrix, jaccard_score, precision_score, recall_score

from helpers.folders import edited
from mmlisa import __version__
from mmlisa.fit import report as module
from mmlisa.fit.report import evaluate_labels, evaluate_maps, evaluate_objects, write_report
from mmlisa.registry import METRICS

NAMES = ["cat", "dog & co", "newt"]


@pytest.fixture
def folder(tmp_path):
    """A finished training's folder, with a log and ten images."""
    log = tmp_path / "run" / "train" / "20260101_000000" / "vis_data" / "scalars.json"
    log.parent.mkdir(parents=True)
    log.write_text("".join(json.dumps({"loss": 1 / step, "lr": 0.1, "iter": step}) + "\n" for step in range(1, 9)))
    (tmp_path / "images").mkdir()
    (tmp_path / "run" / "data").mkdir()
    (tmp_path / "run" / "test" / "predictions").mkdir(parents=True)
    for index in range(14):
        cv2.imwrite(str(tmp_path / "images" / f"{index}.png"), np.full((40, 60, 3), 10 * index, np.uint8))
    return tmp_path


def report(folder, task, monkeypatch, classes=NAMES):
    """The page, and its pictures."""
    monkeypatch.setattr(module, "build_model", lambda cfg: torch.nn.Linear(99, 100))
    run, settings = folder / "run", dict(data_root=str(folder / "images"), classes=classes)
    settings |= dict(steps=10, batch=2, side=64, model=dict(type="RetinaNet", backbone=dict(type="LiSANet", arch="s")))
    (run / "config.py").write_text("\n".join(f"{name} = {value!r}" for name, value in settings.items()))
    facts = dict(format="COCO", task=task, summary=["100 < 200 images"], train=["a", "b"], val=["c"], test=[])
    facts["table"] = [["class", "objects in train"], ["cat", "7"]]
    (run / "data" / "data.json").write_text(json.dumps(facts))
    (run / "export.json").write_text(json.dumps(dict(notes=["too large"], table=[["", "AP"], ["model.onnx", "0.726"]])))
    write_report(run, {"look": "mmlisa infer a"})
    html = (run / "report.html").read_text()
    network = "RetinaNet on LiSANet (s) with 0.01 million parameters"
    told = ["tested on val, number of images: 1; the checkpoint", network, f"mmlisa {__version__}, {date.today()}"]
    for text in ("<p>too large</p>", "<td>0.726</td>", "<td>7</td>", *told):
        assert text in html
    sources = re.findall(r'(?:src|href)="([^"]+)"', html)
    assert all(source.startswith("data:image/") for source in sources), "a page that does not stand alone"
    pictures = [np.frombuffer(b64decode(source.partition(",")[2]), np.uint8) for source in sources]
    return html, [cv2.imdecode(picture, cv2.IMREAD_COLOR) for picture in pictures]


def run_lengths(box):
    inside, (x, y, w, h) = np.zeros((40, 60), np.uint8, order="F"), box
    inside[y : y + h, x : x + w] = 1
    rle = mask.encode(inside)
    return {"size": rle["size"], "counts": rle["counts"].decode()}


def coco_files(folder, detections, with_masks=False):
    """Two objects on each of 14 images, and ``detections(image_id)`` as [label, box, score]."""
    images = [dict(id=i + 1, file_name=f"{i}.png", width=60, height=40) for i in range(14)]
    annotations, found, masks = [], [], []
    for image in images:
        for label, box in ((0, [5, 5, 10, 10]), (1, [30, 10, 20, 25])):
            entry = dict(id=len(annotations) + 1, image_id=image["id"], category_id=label + 1, bbox=box, iscrowd=0)
            outline = dict(segmentation=run_lengths(box)) if with_masks else {}
            annotations.append(entry | dict(area=box[2] * box[3]) | outline)
        for label, box, score in detections(image["id"]):
            entry = dict(image_id=image["id"], category_id=label + 1, score=score)
            found.append(entry | dict(bbox=box))
            masks.append(entry | dict(segmentation=run_lengths(box)))
    categories = [dict(id=i + 1, name=name) for i, name in enumerate(NAMES)]
    (folder / "run" / "data" / "val.json").write_text(
        json.dumps(dict(images=images, annotations=annotations, categories=categories))
    )
    (folder / "run" / "test" / "predictions.bbox.json").write_text(json.dumps(found))
    if with_masks:
        (folder / "run" / "test" / "predictions.segm.json").write_text(json.dumps(masks))


def test_detection(folder, monkeypatch):
    def detections(image):
        if image == 3:  # nothing is found
            return []
        if image == 5:  # a dog is taken for a newt, and there is a ghost
            ghosts = (0, [45, 0, 10, 5], 0.85), (0, [0, 30, 8, 8], 0.1)
            return [(0, [5, 5, 10, 10], 0.9), (2, [30, 10, 20, 25], 0.8), *ghosts]
        return [(0, [5, 5, 10, 10], 0.9), (1, [31, 10, 20, 25], 0.8)]

    coco_files(folder, detections)
    result = evaluate_objects(folder / "run", folder, "val", NAMES)
    expected = np.zeros((4, 4), int)
    expected[0, 0], expected[1, 1] = 13, 12  # cats and dogs that are found
    expected[0, 3] = expected[1, 3] = 1  # those of image 3
    expected[1, 2] = 1
    expected[3, 0] = 1  # the ghost, whose twin has too low a score
    # From 0.8 on, 25 of 27 detections are right, of 28 objects.
    assert result.threshold == pytest.approx(0.8)
    assert f"from a score of 0.80 on, where the F1 of all is highest, {50 / 55:.2f}" in result.unit
    np.testing.assert_array_equal(result.confusion, expected)
    errors = {path: error for path, error, *_ in result.images}
    assert errors == {f"{i}.png": 2.0 if i in (2, 4) else 0.0 for i in range(14)}
    # 12 of 14 dogs are found without a false one: precision is 1 up to a recall of 12/14, and 0 beyond.
    ap50 = f"{(int(100 * 12 / 14) + 1) / 101:.3f}"
    assert result.table[2][:2] + result.table[2][3:] == ["dog & co", "14", ap50, f"{24 / 26:.2f}", "0.80"]
    html, pictures = report(folder, "detection", monkeypatch)
    captions = ["2 missed, 0 found where nothing is", "0 missed, 1 found where nothing is, 1 of another class"]
    for text in ("100 &lt; 200 images", "<td>dog &amp; co</td>", "# look\nmmlisa infer a", *captions):
        assert text in html
    assert len(pictures) == 1 + 2
    assert [row[3] for row in result.table[1:]][2] == "-", "no newt is annotated"


def test_detection_that_finds_nothing(folder):
    coco_files(folder, lambda image: [])
    result = evaluate_objects(folder / "run", folder, "val", NAMES)
    assert result.score == "box AP 0.000, AP50 0.000"
    assert result.confusion[:, 3].tolist() == [14, 14, 0, 0]


def test_a_window_holds_the_parts_of_the_objects(folder):
    """All masks of a large image at once would take gigabytes."""
    detections = [(0, [5, 5, 10, 10], 0.9), *[(1, [31, 10, 20, 25], score) for score in (0.8, 0.2, 0.1)]]
    coco_files(folder, lambda image: detections, with_masks=True)
    result = evaluate_objects(folder / "run", folder, "val", NAMES)
    sample = result.sample("3.png", (10, 0, 30, 20))  # cuts both objects
    assert sample.pred_instances.scores.tolist() == [0.9, 0.8]
    assert sample.gt_instances.masks.sum((1, 2)).tolist() == [50, 100]
    assert sample.gt_instances.bboxes.tolist() == [[0, 5, 5, 15], [20, 10, 30, 20]]


def test_detections_in_a_crowd_do_not_count(folder):
    coco_files(folder, lambda image: [(0, [5, 5, 10, 10], 0.9), (0, [0, 20, 10, 10], 0.9), (0, [50, 35, 10, 5], 0.9)])
    with edited(folder / "run" / "data" / "val.json") as content:
        for entry in content["annotations"][1::2]:
            entry.update(category_id=1, bbox=[0, 18, 28, 20], area=560, iscrowd=1)
            entry["segmentation"] = {"size": [40, 60], "counts": [0, 2400]}
    result = evaluate_objects(folder / "run", folder, "val", NAMES)
    assert (result.confusion[0, 0], result.confusion[3, 0], result.confusion.sum()) == (14, 14, 28)
    assert [row[1] for row in result.table[1:]] == ["14", "0", "0", "14"], "a crowd is not an object"


def test_segmentation(folder, monkeypatch):
    """The images with the largest errors come first; those without errors are not shown."""
    rng, perfect = np.random.default_rng(0), (0, 6, 13)
    truths, founds = [], []
    for index in range(14):
        truth = rng.integers(0, 3, (40, 60), dtype=np.uint8)
        share = 0 if index in perfect else 0.02 * index
        found = np.where(rng.random(truth.shape) < share, (truth + 1) % 3, truth).astype(np.uint8)
        cv2.imwrite(str(folder / "run" / "test" / "predictions" / f"{index}.png.png"), found)
        truths.append(truth[3:].flatten())
        founds.append(found[3:].flatten())
        truth[:3] = 255
        cv2.imwrite(str(folder / "images" / f"map{index}.png"), truth)
    lines = [f"{index}.png\tmap{index}.png" for index in range(14)]
    (folder / "run" / "data" / "val.txt").write_text("\n".join(lines))
    result = evaluate_maps(folder / "run", folder / "images", "val", NAMES)
    truth, found = np.concatenate(truths), np.concatenate(founds)
    expected = jaccard_score(truth, found, average=None)
    assert [row[2] for row in result.table[1:]] == [f"{100 * value:.1f}" for value in expected]
    assert [row[1] for row in result.table[1:]] == [f"{share:.1%}" for share in np.bincount(truth) / len(truth)]
    assert result.score.startswith(f"mIoU {100 * expected.mean():.1f},")
    np.testing.assert_array_equal(result.confusion, confusion_matrix(truth, found))
    html, _ = report(folder, "segmentation", monkeypatch)
    worst = re.findall(r"<figcaption>(\d+)\.png: mIoU", html)
    assert list(map(int, worst)) == [12, 11, 10, 9, 8, 7, 5, 4, 3, 2, 1]


def test_classification(folder, monkeypatch):
    rng = np.random.default_rng(1)
    truth = rng.permutation([0] * 6 + [1] * 5 + [2] * 3)
    scores = rng.dirichlet([1, 1, 1], 14)
    entries = [
        dict(img_path=str(folder / "images" / f"{i}.png"), gt_label=torch.tensor([t]), pred_score=torch.tensor(s))
        for i, (t, s) in enumerate(zip(truth, scores, strict=True))
    ]
    (folder / "run" / "test" / "predictions.pkl").write_bytes(pickle.dumps(entries))
    result = evaluate_labels(folder / "run", folder / "images", "val", NAMES)
    found = scores.argmax(1)
    np.testing.assert_array_equal(result.confusion, confusion_matrix(truth, found))
    assert result.score == f"top-1 {np.mean(truth == found):.1%} of 14 images"
    for column, score in ((2, recall_score), (3, precision_score)):
        expected = score(truth, found, average=None, zero_division=0)
        assert [row[column] for row in result.table[1:]] == [f"{value:.1%}" for value in expected]
    for index, (_, error, caption, _) in enumerate(result.images):
        wrong = found[index] != truth[index]
        assert (error > 0, caption != "recognised") == (wrong, wrong)
        assert not wrong or error == pytest.approx(scores[index].max() - scores[index][truth[index]])
    html, _ = report(folder, "classification", monkeypatch)
    assert "taken for" in html


def test_predictions_are_written_without_logits(tmp_path):
    sample = dict(img_path="a.png", pred_sem_seg=torch.ones(4, 4), seg_logits=torch.ones(150, 4, 4))
    dump = METRICS.build(dict(type="mmlisa.DumpWithoutLogits", out_file_path=str(tmp_path / "a.pkl")))
    dump.process(None, [sample])
    dump.evaluate(1)
    (found,) = pickle.loads((tmp_path / "a.pkl").read_bytes())
    assert found.keys() == {"img_path", "pred_sem_seg"}
    assert "seg_logits" in sample, "which other metrics may read"


def test_crops_around_errors_in_a_large_image(folder):
    """Each about 300 pixels, not twice at one place, and at most three of an image."""
    places = [[20, 20], [60, 40], [1500, 900], [3000, 2000], [3900, 2900]]
    boxes = [[x, y, 30, 30] for x, y in places]
    entries = [dict(id=i, image_id=1, category_id=1, bbox=box, area=900, iscrowd=0) for i, box in enumerate(boxes, 1)]
    images, names = [dict(id=1, file_name="0.png", width=4000, height=3000)], [dict(id=1, name="cat")]
    content = dict(images=images, categories=names, annotations=entries)
    (folder / "run" / "data" / "val.json").write_text(json.dumps(content))
    found = dict(image_id=1, category_id=1, bbox=boxes[2], score=0.9)
    (folder / "run" / "test" / "predictions.bbox.json").write_text(json.dumps([found]))
    cv2.imwrite(str(folder / "images" / "0.png"), np.zeros((3000, 4000, 3), np.uint8))
    result = evaluate_objects(folder / "run", folder / "images", "val", ["cat"])
    corners = [[0, 0], [0, 0], [2865, 1865], [3700, 2700]]
    assert result.images[0][3] == [[*corner, 300, 300] for corner in corners]
    drawn = module.draw_errors(result, folder / "images", ["cat"])
    assert [caption.partition(":")[0] for _, caption in drawn] == [
        f"0.png, 300x300 pixels at {x}, {y}" for x, y in ((0, 0), (2865, 1865), (3700, 2700))
    ]
    for content, _ in drawn:
        assert cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR).shape[1] == pytest.approx(808, abs=2)


def test_a_run_has_trained_as_long_as_its_logs(folder):
    for start in ("20260101_000000", "20260102_000000"):
        log = folder / "run" / "train" / start / "vis_data" / "scalars.json"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.touch()
        end = datetime.strptime(start, "%Y%m%d_%H%M%S").timestamp() + 90
        os.utime(log, (end, end))
    assert module.duration(folder / "run") == "0:03:00"
