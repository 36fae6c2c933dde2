"""COCO's metric, against mmdet's own class, and against results that are known."""

import json
import math
from multiprocessing.pool import ThreadPool

import numpy as np
import pytest
import torch

pytest.importorskip("mmdet")
from mmdet.datasets.api_wrappers import cocoeval_mp
from mmdet.evaluation import CocoMetric as TheirMetric
from pycocotools import mask as mask_api
from pycocotools.cocoeval import COCOeval

from mmlisa.datasets.coco_metric import CocoMetric, format_score

NAMES = ("cat", "dog", "newt")


def files_and_results(folder, most: int, ids=(1, 3, 5)) -> list[tuple[dict, dict]]:
    """Write objects of many sizes, and return detections near them: at most ``most`` of a class in an image."""
    rng, annotations, results = np.random.default_rng(0), [], []
    for image in range(1, 5):
        corners, sides = rng.integers(0, 300, (60, 2)), rng.choice([10, 50, 150], (60, 2))
        labels = rng.integers(0, 2, 60)  # no newt
        for label, corner, (width, height) in zip(labels, corners, sides, strict=True):
            inside = np.zeros((480, 480), np.uint8, order="F")
            inside[corner[1] : corner[1] + height, corner[0] : corner[0] + width] = 1
            outline = mask_api.encode(inside)
            outline["counts"] = outline["counts"].decode()
            entry = dict(id=len(annotations) + 1, image_id=image, category_id=ids[label], area=int(width * height))
            box = [*corner.tolist(), int(width), int(height)]
            annotations.append(entry | dict(bbox=box, segmentation=outline, iscrowd=int(rng.random() < 0.1)))
        picked = rng.integers(0, 60, most)
        boxes = np.concatenate([corners, corners + sides], axis=1)[picked] + rng.normal(0, 3, (most, 4))
        masks = [annotations[index - 60]["segmentation"] for index in picked]
        wrong = rng.random(most) < 0.2
        found = dict(img_id=image, bboxes=boxes, labels=np.where(wrong, 2, labels[picked]), masks=masks)
        results.append(({}, found | dict(scores=rng.random(most))))
    categories = [dict(id=number, name=name) for number, name in zip(ids, NAMES, strict=True)]
    images = [dict(id=image, file_name=f"{image}.png", width=480, height=480) for image in range(1, 5)]
    (folder / "a.json").write_text(json.dumps(dict(images=images, categories=categories, annotations=annotations)))
    return results


def values_of(results, file, kind=CocoMetric, classes=NAMES, **options) -> dict[str, float]:
    metric = kind(str(file), **options)
    metric.dataset_meta = dict(classes=classes)
    return dict(metric.compute_metrics(results))


EVERY_ITEM = [
    "mAP",
    "mAP_50",
    "mAP_75",
    "mAP_s",
    "mAP_m",
    "AR@100",
    "AR@300",
    "AR@1000",
    "AR_s@1000",
    "AR_m@1000",
    "AR_l@1000",
]


@pytest.mark.parametrize(
    "options",
    [
        dict(metric=["bbox", "segm"]),
        dict(metric=["bbox", "segm"], metric_items=EVERY_ITEM),
        dict(metric="bbox", use_mp_eval=True),
        dict(metric="proposal"),
        dict(format_only=True),
    ],
    ids=str,
)
def test_up_to_100_detections_of_a_class_the_values_are_mmdets(tmp_path, monkeypatch, options):
    # Forks of a process that has threads may wait for ever.
    monkeypatch.setattr(cocoeval_mp.mp, "Pool", ThreadPool)
    results, calls = files_and_results(tmp_path, 100), []
    evaluate, values = COCOeval.evaluate, []
    monkeypatch.setattr(COCOeval, "evaluate", lambda self: (calls.append(self.params.iouType), evaluate(self)))
    for kind in (CocoMetric, TheirMetric):
        values.append(values_of(results, tmp_path / "a.json", kind, outfile_prefix=str(tmp_path / "found"), **options))
    assert values[0] == values[1]
    assert "bbox_mAP" not in values[0] or 0.1 < values[0]["bbox_mAP"] < 0.9
    assert calls[: len(calls) // 2] == calls[len(calls) // 2 :]  # evaluated once, too


def test_results_of_a_class_belong_to_it_whatever_its_id(tmp_path):
    """mmdet permutes them, and has one key for boxes and masks."""
    results = files_and_results(tmp_path, 100)
    options = dict(metric=["bbox", "segm"], classwise=True)
    expected = values_of(results, tmp_path / "a.json", TheirMetric, metric="bbox", classwise=True)
    assert expected["cat_precision"] != expected["dog_precision"]
    (tmp_path / "falling").mkdir()
    results = files_and_results(tmp_path / "falling", 100, ids=(9, 4, 2))
    found = values_of(results, tmp_path / "falling" / "a.json", **options)
    for name in ("cat", "dog"):
        assert found[f"bbox_{name}_precision"] == expected[f"{name}_precision"] != found[f"segm_{name}_precision"]
    assert math.isnan(found["bbox_newt_precision"])
    assert next(iter(found)) == "bbox_mAP", "which save_best='auto' takes"


def of_boxes(boxes, classes=(), scores=None, image=1, area=100):
    """Annotations of boxes [x, y, w, h], and the result that finds each exactly."""
    classes = list(classes) or [0] * len(boxes)
    entries = [
        dict(id=i, image_id=image, category_id=c + 1, bbox=b, area=area, iscrowd=0)
        for i, (b, c) in enumerate(zip(boxes, classes, strict=True), 1)
    ]
    corners = np.array([[x, y, x + w, y + h] for x, y, w, h in boxes], float).reshape(-1, 4)
    scores = np.full(len(boxes), 0.5) if scores is None else np.array(scores)
    return entries, dict(img_id=image, bboxes=corners, scores=scores, labels=np.array(classes, int))


def write(folder, entries, images=1, names=("cat", "dog")):
    content = dict(images=[dict(id=i + 1, width=900, height=900) for i in range(images)], annotations=entries)
    content["categories"] = [dict(id=i, name=name) for i, name in enumerate(names, 1)]
    (folder / "val.json").write_text(json.dumps(content))
    return folder / "val.json"


def without(found: dict) -> dict:
    """The result of an image in which nothing is found."""
    return found | dict(bboxes=np.zeros((0, 4)), scores=np.zeros(0), labels=np.zeros(0, int))


MANY = [[20 * (i % 40), 20 * (i // 40), 10, 10] for i in range(150)]


@pytest.mark.parametrize(
    "options", [{}, dict(proposal_nums=(300,)), dict(iou_thrs=[0.5, 0.6], classwise=True), dict(iou_thrs=0.6)]
)
def test_all_objects_of_a_full_image_count_of_a_part_of_the_classes(tmp_path, options):
    """pycocotools ends at 100 detections of a class in an image."""
    entries, found = of_boxes(MANY)
    dogs, nothing = of_boxes([[5, 5, 50, 50]], [1], image=2)
    results = [({}, found), ({}, without(nothing))]
    values = values_of(results, write(tmp_path, entries + dogs, images=2), classes=("cat",), **options)
    assert values["bbox_mAP"] == 1
    assert values["bbox_mAP_s"] == 1
    assert math.isnan(values["bbox_mAP_l"]), "not -1, which could become the best"
    assert math.isnan(values["bbox_mAP_75"]) == ("iou_thrs" in options)


def test_thresholds_of_the_config_count(tmp_path):
    entries, found = of_boxes([[0, 0, 100, 100]])
    found["bboxes"] = found["bboxes"] + [0, 0, -35, 0]  # an IoU of .65
    file = write(tmp_path, entries)
    assert values_of([({}, found)], file, classes=("cat", "dog"), iou_thrs=[0.5, 0.6])["bbox_mAP"] == 1
    assert values_of([({}, found)], file, classes=("cat", "dog"), iou_thrs=[0.6, 0.7])["bbox_mAP"] == 0.5


@pytest.fixture
def logged(monkeypatch) -> list[str]:
    lines = []
    monkeypatch.setattr("mmlisa.datasets.coco_metric.print_log", lambda text, **_: lines.append(text))
    return lines


def test_the_images_of_the_data_set_are_evaluated(tmp_path, logged):
    """Those that it leaves out are not missed objects; an image of another file is an error."""
    entries, found = of_boxes(MANY[:3])
    more, _ = of_boxes(MANY[:3], image=2)
    file = write(tmp_path, entries + more, images=2)
    assert values_of([({}, found)], file, classes=("cat", "dog"))["bbox_mAP"] == 1
    assert [line.partition(" are not")[0] for line in logged] == ["1 of the 2 images of ann_file"]
    with pytest.raises(ValueError, match="ann_file of the evaluator has no image 3"):
        values_of([({}, found | dict(img_id=3))], file, classes=("cat", "dog"))


def test_nothing_found_is_0_and_nothing_there_is_nan(tmp_path, logged):
    entries, found = of_boxes(MANY[:3])
    for annotations, expected, text in ((entries, 0.0, "lower score_thr"), ([], math.nan, "AP is not defined")):
        values = values_of([({}, without(found))], write(tmp_path, annotations), classes=("cat", "dog"), classwise=True)
        assert [values["bbox_mAP"], values["bbox_cat_precision"]] == pytest.approx([expected] * 2, nan_ok=True)
        assert text in logged[-2]  # before the table


@pytest.mark.parametrize("classes", [("dog", "cat"), ("cat", "newt"), ("dog", "dog")])
def test_classes_that_are_not_the_files_are_refused(tmp_path, classes):
    entries, found = of_boxes(MANY[:3])
    with pytest.raises(ValueError, match=r"\['cat', 'dog'\]|\['cat'\]|\['dog'\]"):
        values_of([({}, found)], write(tmp_path, entries), classes=classes)


def test_labels_of_other_classes_are_refused_at_once(tmp_path):
    metric = CocoMetric(str(write(tmp_path, [])))
    metric.dataset_meta = dict(classes=("cat", "dog"))
    found = dict(bboxes=torch.zeros(1, 4), scores=torch.ones(1), labels=torch.tensor([2]))
    with pytest.raises(ValueError, match="label 2, and the data set has 2 classes"):
        metric.process({}, [dict(img_id=1, ori_shape=(9, 9), pred_instances=found)])


@pytest.mark.parametrize(
    "options",
    [dict(metric=["bbox", "proposal"]), dict(metric="proposal", proposal_nums=(300,)), dict(metric_items=["mAP_90"])],
    ids=str,
)
def test_options_that_are_refused(options):
    with pytest.raises(ValueError, match=f"{list(options)[-1]}="):
        CocoMetric(**options)


def test_the_table_has_ap_and_the_best_f1_of_each_class(tmp_path, logged):
    """Three of four cats, and a ghost of the same score, are found from .8 on. The dog is missed; no newt is there."""
    boxes, scores = MANY[:6], [0.9, 0.85, 0.809, 0.809, 0.6, 0.5]
    entries, found = of_boxes(boxes, scores=scores)
    objects = entries[:3] + of_boxes([[700, 700, 10, 10], [500, 500, 99, 99]], [0, 1])[0]
    metric = CocoMetric(str(write(tmp_path, objects, names=NAMES)))
    metric.dataset_meta, metric.table = dict(classes=NAMES), True
    values = metric.compute_metrics([({}, found)])
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in logged[-1].splitlines() if "|" in line]
    assert rows[0] == ["class", "objects", "box AP", "box AP50", "best F1 (IoU 0.5)", "from score"]
    ap = 76 / 101  # precision is 1 up to a recall of .75
    assert rows[1] == ["cat", "4", f"{ap:.3f}", f"{ap:.3f}", f"{6 / 8:.2f}", "0.80"]
    assert rows[2] == ["dog", "1", "0.000", "0.000", "0.00", "-"]
    assert rows[3] == ["newt", "0", "-", "-", "-", "-"]
    assert rows[4] == ["all", "5", f"{values['bbox_mAP']:.3f}", f"{ap / 2:.3f}", f"{6 / 9:.2f}", "0.80"]


@pytest.mark.parametrize(("score", "text"), [(0.999, "0.99"), (0.57, "0.57"), (0.8, "0.80")])
def test_a_threshold_is_passed_by_its_detection(score, text):
    assert format_score(score) == text


def test_ids_of_annotations_do_not_matter(tmp_path):
    """pycocotools takes the id 0 for "not found", keeps the last annotation of an id, and needs iscrowd."""
    entries, found = of_boxes(MANY[:3])
    for number, entry in enumerate(entries):
        entry["id"] = number % 2
        del entry["iscrowd"]
    assert values_of([({}, found)], write(tmp_path, entries), classes=("cat", "dog"))["bbox_mAP"] == 1
