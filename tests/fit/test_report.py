"""The report's numbers, against closed forms, sklearn and pycocotools, and that its pages are whole."""

import json
import pickle
import re

import cv2
import numpy as np
import pytest
import torch
from PIL import Image
from pycocotools import mask
from pycocotools.coco import COCO
from sklearn.metrics import confusion_matrix, jaccard_score, precision_recall_curve

from mmlisa.fit.evaluation import evaluate_labels, evaluate_maps, evaluate_objects, match
from mmlisa.fit.report import draw_confusion, write_report
from mmlisa.registry import METRICS

NAMES = ["cat", "dog & co", "newt"]
COMMON = dict(
    classes=NAMES,
    split="val",
    summary=["100 < 200 images"],
    commands={"look": "mmlisa infer a"},
)


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


def pages(folder):
    html, text = ((folder / "run" / f"report.{end}").read_text() for end in ("html", "md"))
    assert 'src="data:image/' in html
    assert not re.search(r"(src|href)=\"(?!data:)", html)  # self-contained
    assert "100 &lt; 200 images" in html
    pictures = re.findall(r"!\[[^]]*\]\(<([^>]+)>\)", text)
    assert pictures
    assert all((folder / "run" / picture).is_file() for picture in pictures)
    return html, text


def coco_files(folder, detections):
    """Two objects on each of 14 images, and ``detections(image_id)`` as [label, box, score]."""
    images = [dict(id=i + 1, file_name=f"{i}.png", width=60, height=40) for i in range(14)]
    annotations, found = [], []
    for image in images:
        for label, box in ((0, [5, 5, 10, 10]), (1, [30, 10, 20, 25])):
            annotations.append(dict(id=len(annotations) + 1, image_id=image["id"], category_id=label + 1, bbox=box,
                                    area=box[2] * box[3], iscrowd=0))  # fmt: skip
        found += [
            dict(image_id=image["id"], category_id=label + 1, bbox=box, score=score)
            for label, box, score in detections(image["id"])
        ]
    categories = [dict(id=i + 1, name=name) for i, name in enumerate(NAMES)]
    (folder / "run" / "data" / "val.json").write_text(
        json.dumps(dict(images=images, annotations=annotations, categories=categories))
    )
    (folder / "run" / "test" / "predictions.bbox.json").write_text(json.dumps(found))


def test_detection(folder):
    def detections(image):
        if image == 3:  # nothing is found
            return []
        if image == 5:  # a dog is taken for a newt, and there is a ghost
            return [
                (0, [5, 5, 10, 10], 0.9),
                (2, [30, 10, 20, 25], 0.8),
                (0, [45, 0, 10, 5], 0.6),
                (0, [0, 30, 8, 8], 0.1),
            ]
        return [(0, [5, 5, 10, 10], 0.9), (1, [31, 10, 20, 25], 0.8)]

    coco_files(folder, detections)
    score = write_report(folder / "run", task="detection", root=folder / "images", **COMMON)
    result = evaluate_objects(folder / "run", folder / "images", "val", NAMES, {})
    expected = np.zeros((4, 4), int)
    expected[0, 0], expected[1, 1] = 13, 12  # cats and dogs that are found
    expected[0, 3] = expected[1, 3] = 1  # those of image 3
    expected[1, 2] = 1
    expected[3, 0] = 1  # the ghost, whose twin has too low a score
    np.testing.assert_array_equal(result.confusion, expected)
    errors = {path: error for path, error, _ in result.images}
    assert errors == {f"{i}.png": 2.0 if i in (2, 4) else 0.0 for i in range(14)}
    assert sorted(result.sides[1]) == pytest.approx([10, 500**0.5, 500**0.5])
    assert len(result.sides[0]) == 25
    # 12 of 14 dogs are found without a false one: precision is 1 up to a recall of 12/14, and 0 beyond.
    assert result.precision[1].mean() == pytest.approx((int(100 * 12 / 14) + 1) / 101)
    assert np.isnan(result.precision[2]).all()
    row = next(row for row in result.table if row[0] == "dog & co")
    assert row[3] == f"{result.precision[1].mean():.3f}"
    assert "AP50" in score
    html, text = pages(folder)
    assert "dog &amp; co" in html
    assert "2 of 2 missed, 0 found where nothing is" in text
    assert "0 of 2 missed, 1 found where nothing is, 1 of another class" in text
    assert len(re.findall(r"worst_\d+\.jpeg", text)) == 12


def test_bars_in_names_do_not_end_the_cells_of_a_table(folder):
    coco_files(folder, lambda image: [])
    names = dict(classes=["cat|kitten", "dog & co", "newt"])
    write_report(folder / "run", task="detection", root=folder / "images", **COMMON | names)
    html, text = pages(folder)
    assert "\n| cat\\|kitten | 14 | 0.000 | 0.000 |\n" in text
    assert "<td>cat|kitten</td>" in html


def test_detection_that_finds_nothing(folder):
    coco_files(folder, lambda image: [])
    assert write_report(folder / "run", task="detection", root=folder / "images", **COMMON).startswith("box AP 0.000")
    pages(folder)


def test_masks_are_decoded_where_they_are_drawn(folder, monkeypatch):
    """All masks of a dozen photographs at once would take gigabytes, and most are of detections with low scores."""
    detections = [(0, [5, 5, 10, 10], 0.9), *[(1, [31, 10, 20, 25], score) for score in (0.8, 0.2, 0.1)]]
    coco_files(folder, lambda image: detections)
    truth, boxes = folder / "run" / "data" / "val.json", folder / "run" / "test" / "predictions.bbox.json"
    content, found = json.loads(truth.read_text()), json.loads(boxes.read_text())
    for entry in [*content["annotations"], *found]:
        x, y, w, h = entry["bbox"]
        inside = np.zeros((40, 60), np.uint8, order="F")
        inside[y : y + h, x : x + w] = 1
        rle = mask.encode(inside)
        entry["segmentation"] = {"size": rle["size"], "counts": rle["counts"].decode()}
    truth.write_text(json.dumps(content))
    boxes.with_name("predictions.segm.json").write_text(
        json.dumps([{key: value for key, value in entry.items() if key != "bbox"} for entry in found])
    )
    decoded, decode = [], COCO.annToMask
    monkeypatch.setattr(COCO, "annToMask", lambda *given: decoded.append(1) or decode(*given))
    result = evaluate_objects(folder / "run", folder / "images", "val", NAMES, {})
    assert not decoded
    sample = result.sample("3.png")
    assert len(decoded) == 4
    assert sample.pred_instances.scores.tolist() == [0.9, 0.8]
    for instances in (sample.gt_instances, sample.pred_instances):
        assert instances.masks.sum((1, 2)).tolist() == [100, 500]


def test_detections_in_a_crowd_do_not_count(folder):
    coco_files(folder, lambda image: [(0, [5, 5, 10, 10], 0.9), (0, [0, 20, 10, 10], 0.9), (0, [50, 35, 10, 5], 0.9)])
    file = folder / "run" / "data" / "val.json"
    content = json.loads(file.read_text())
    for entry in content["annotations"][1::2]:
        entry.update(category_id=1, bbox=[0, 18, 28, 20], area=560, iscrowd=1)
        entry["segmentation"] = {"size": [40, 60], "counts": [0, 2400]}
    file.write_text(json.dumps(content))
    result = evaluate_objects(folder / "run", folder / "images", "val", NAMES, {})
    assert (result.confusion[0, 0], result.confusion[3, 0], result.confusion.sum()) == (14, 14, 28)
    assert [row[1] for row in result.table[1:]] == ["14", "0", "0"], "a crowd is not an object"


def test_objects_and_detections_are_matched_once():
    def entry(left, label=1):
        return dict(bbox=[left, 0, 10, 10], category_id=label)

    assert match([], []) == []
    assert match([entry(0)], []) == [(0, None)]
    assert match([], [entry(0)]) == [(None, 0)]
    assert match([entry(0)], [entry(4)]) == [(0, None), (None, 0)]  # an overlap of 6 / 14
    assert match([entry(0)], [entry(3), entry(1), entry(0, 2)]) == [
        (0, 1),
        (None, 0),
        (None, 2),
    ]  # its class, then the overlap
    assert sorted(match([entry(0), entry(2)], [entry(1), entry(3)])) == [(0, 0), (1, 1)]


def test_segmentation(folder):
    rng = np.random.default_rng(0)
    truths, founds = [], []
    for index in range(14):
        truth = rng.integers(0, 3, (40, 60), dtype=np.uint8)
        found = np.where(rng.random(truth.shape) < 0.02 * index, (truth + 1) % 3, truth).astype(np.uint8)
        truth[:3] = 255
        cv2.imwrite(str(folder / "images" / f"map{index}.png"), truth)
        cv2.imwrite(str(folder / "run" / "test" / "predictions" / f"{index}.png.png"), found)
        truths.append(truth[3:].ravel())
        founds.append(found[3:].ravel())
    lines = [f"{index}.png\tmap{index}.png" for index in range(14)]
    (folder / "run" / "data" / "val.txt").write_text("\n".join(lines))
    score = write_report(folder / "run", task="segmentation", root=folder / "images", **COMMON)
    expected = jaccard_score(np.concatenate(truths), np.concatenate(founds), average=None)
    result = evaluate_maps(folder / "run", folder / "images", "val", NAMES, {})
    assert [row[2] for row in result.table[1:]] == [f"{100 * value:.1f}" for value in expected]
    assert score.startswith(f"mIoU {100 * expected.mean():.1f},")
    np.testing.assert_array_equal(result.confusion, confusion_matrix(np.concatenate(truths), np.concatenate(founds)))
    worst = [path for path, *_ in sorted(result.images, key=lambda image: -image[1])[:12]]
    assert worst == [f"{index}.png" for index in range(13, 1, -1)]
    pages(folder)


def test_the_worst_images_keep_their_colours(folder):
    nothing, red = np.zeros((40, 60), np.uint8), np.full((40, 60, 3), (0, 0, 200), np.uint8)  # BGR
    cv2.imwrite(str(folder / "images" / "0.png"), red)
    for file in ("images/map.png", "run/test/predictions/0.png.png"):
        cv2.imwrite(str(folder / file), nothing)
    (folder / "run" / "data" / "val.txt").write_text("0.png\tmap.png")
    classes = dict(classes=["background", "object"])
    write_report(folder / "run", task="segmentation", root=folder / "images", **COMMON | classes)
    drawn = cv2.imread(str(folder / "run" / "report" / "worst_01.jpeg"))
    np.testing.assert_allclose(drawn[100, 100], (0, 0, 200), atol=5)


def test_equal_errors_at_the_last_place(folder):
    """Three of 14 predictions are perfect, and the report has room for one of them: the first."""
    truth, perfect = np.ones((40, 60), np.uint8), (0, 6, 13)
    for index in range(14):
        found = truth.copy()
        found[: 0 if index in perfect else index] = 2
        cv2.imwrite(str(folder / "images" / f"map{index}.png"), truth)
        cv2.imwrite(str(folder / "run" / "test" / "predictions" / f"{index}.png.png"), found)
    lines = [f"{index}.png\tmap{index}.png" for index in range(14)]
    (folder / "run" / "data" / "val.txt").write_text("\n".join(lines))
    write_report(folder / "run", task="segmentation", root=folder / "images", **COMMON)
    drawn = re.findall(r"\n\*(\d+)\.png: mIoU", pages(folder)[1])
    assert list(map(int, drawn)) == [12, 11, 10, 9, 8, 7, 5, 4, 3, 2, 1, 0]


def test_values_of_masks_in_black_and_white(folder):
    truth = np.zeros((40, 60), np.uint8)
    truth[:10] = 255
    cv2.imwrite(str(folder / "images" / "map.png"), truth)
    cv2.imwrite(str(folder / "run" / "test" / "predictions" / "0.png.png"), (truth > 0).astype(np.uint8))
    (folder / "run" / "data" / "val.txt").write_text("0.png\tmap.png")
    result = evaluate_maps(folder / "run", folder / "images", "val", ["background", "object"], {255: 1})
    np.testing.assert_array_equal(result.confusion, [[1800, 0], [0, 600]])


def test_shares_of_pixels_are_those_of_the_annotations(folder):
    truth = np.zeros((40, 60), np.uint8)
    truth[:10] = 1
    cv2.imwrite(str(folder / "images" / "map.png"), truth)
    cv2.imwrite(str(folder / "run" / "test" / "predictions" / "0.png.png"), 0 * truth)
    (folder / "run" / "data" / "val.txt").write_text("0.png\tmap.png")
    result = evaluate_maps(folder / "run", folder / "images", "val", ["background", "object"], {})
    assert result.table[1:] == [["background", "75.0%", "75.0"], ["object", "25.0%", "0.0"]]


def test_classification(folder):
    rng = np.random.default_rng(1)
    truth = rng.permutation([0] * 6 + [1] * 5 + [2] * 3)
    scores = rng.dirichlet([1, 1, 1], 14)
    entries = [
        dict(img_path=str(folder / "images" / f"{i}.png"), gt_label=torch.tensor([t]), pred_score=torch.tensor(s))
        for i, (t, s) in enumerate(zip(truth, scores, strict=True))
    ]
    (folder / "run" / "test" / "predictions.pkl").write_bytes(pickle.dumps(entries))
    score = write_report(folder / "run", task="classification", root=folder / "images", **COMMON)
    result = evaluate_labels(folder / "run", folder / "images", "val", NAMES, {})
    np.testing.assert_array_equal(result.confusion, confusion_matrix(truth, scores.argmax(1)))
    assert score == f"top-1 {np.mean(truth == scores.argmax(1)):.1%} of 14 images"
    for label in range(3):
        precision, recall, _ = precision_recall_curve(truth == label, scores[:, label])
        expected = [precision[:-1][recall[:-1] >= r - 1e-9].max() for r in np.linspace(0, 1, 101)]
        np.testing.assert_allclose(result.precision[label], expected, atol=1e-9)
    assert result.images[int(np.argmax([e for _, e, _ in result.images]))][2] != "recognised"
    gaps = [
        (error, scores[i].max() - scores[i][truth[i]])
        for i, (_, error, said) in enumerate(result.images)
        if said != "recognised"
    ]
    assert gaps
    assert all(error == pytest.approx(gap) for error, gap in gaps)
    pages(folder)


def test_predictions_are_written_without_logits(tmp_path):
    sample = dict(img_path="a.png", pred_sem_seg=torch.ones(4, 4), seg_logits=torch.ones(150, 4, 4))
    dump = METRICS.build(dict(type="mmlisa.DumpWithoutLogits", out_file_path=str(tmp_path / "a.pkl")))
    dump.process(None, [sample])
    dump.evaluate(1)
    (found,) = pickle.loads((tmp_path / "a.pkl").read_bytes())
    assert found.keys() == {"img_path", "pred_sem_seg"}
    assert "seg_logits" in sample, "which other metrics may read"


def test_colours_of_a_confusion_matrix_are_shares_of_its_rows(tmp_path):
    from matplotlib import colormaps

    draw_confusion(np.array([[10, 0], [30, 30]]), ["cat", "dog"], tmp_path / "matrix.png")
    with Image.open(tmp_path / "matrix.png") as picture:
        pixels = np.asarray(picture.convert("RGB")).astype(int)

    def cells(share: float) -> int:
        """Pixels in the colour of a share, in the size of a cell, which is that of the empty one."""
        areas = [(abs(pixels - np.multiply(colormaps["Blues"](x)[:3], 255)).max(-1) < 2).sum() for x in (share, 0)]
        return round(areas[0] / areas[1])

    assert [cells(share) for share in (0.25, 0.5, 0.75, 1)] == [0, 2, 0, 1]
