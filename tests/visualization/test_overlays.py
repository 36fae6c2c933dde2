"""Where things are drawn, in which colour, that labels stay off the objects, and which pictures a hook draws."""

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from mmdet.structures import DetDataSample
from mmengine.structures import InstanceData, PixelData
from mmpretrain.structures import DataSample
from mmseg.structures import SegDataSample
from PIL import Image

from mmlisa.classes import Classes
from mmlisa.visualization import OverlayHook, overlays
from mmlisa.visualization.overlays import contact_sheet, draw_prediction, draw_truth

CLASSES = Classes({"classes": ("cat", "cup"), "palette": [(250, 0, 0), (0, 0, 250)]})
GREY = np.full((160, 160, 3), 128, np.uint8)  # enlarged four times
SCALE = overlays.LONGER_SIDE // 160


def detections(boxes, labels, scores, masks=None) -> DetDataSample:
    instances = InstanceData(
        bboxes=torch.tensor(boxes, dtype=torch.float32), labels=torch.tensor(labels), scores=torch.tensor(scores)
    )
    if masks is not None:
        instances.masks = torch.as_tensor(masks)
    return DetDataSample(pred_instances=instances)


def mask_of(*box: int) -> np.ndarray:
    left, top, right, bottom = box
    mask = np.zeros((160, 160), bool)
    mask[top:bottom, left:right] = True
    return mask


def changed(drawing: np.ndarray) -> np.ndarray:
    return (drawing != 128).any(-1)


def test_an_object_has_a_mask_a_box_and_a_label_above():
    box = (40, 60, 100, 120)
    drawing = draw_prediction(GREY, detections([box], [1], [0.9], [mask_of(*box)]), CLASSES)
    assert drawing.shape == (640, 640, 3)
    left, top, right, bottom = (SCALE * side for side in box)
    expected = np.array((128, 128, 128)) * 0.6 + np.array((0, 0, 250)) * 0.4
    assert np.abs(drawing[top + 8 : bottom - 8, left + 8 : right - 8] - expected).max() <= 1
    outside = changed(drawing)
    outside[top - 2 : bottom + 3, left - 2 : right + 3] = False
    rows, columns = np.nonzero(outside)
    assert rows.max() < top
    assert columns.min() >= left - 2
    assert not changed(GREY).any(), "the caller's picture stays as it is"


def test_scores_below_the_threshold_are_not_drawn():
    sample = detections([(10, 10, 90, 90)], [0], [0.29])
    assert not changed(draw_prediction(GREY, sample, CLASSES, score_threshold=0.3)).any()
    assert changed(draw_prediction(GREY, sample, CLASSES, score_threshold=0.2)).any()


def test_annotations_are_drawn_on_the_left():
    sample = detections([(10, 10, 90, 90)], [0], [0.9])
    sample.gt_instances = InstanceData(bboxes=torch.tensor([[100.0, 100.0, 150.0, 150.0]]), labels=torch.tensor([1]))
    drawing = draw_prediction(GREY, sample, CLASSES)
    assert drawing.shape[1] == 2 * 640 + 8
    halves = drawing[:, :640], drawing[:, 648:]
    blue, red = (
        ((half == colour).all(-1)).sum() for half, colour in zip(halves, ((0, 0, 250), (250, 0, 0)), strict=True)
    )
    assert blue > 300
    assert red > 300
    assert not (halves[0] == (250, 0, 0)).all(-1).any()


def test_without_annotations_the_picture_stays_as_it_is():
    assert not changed(draw_truth(GREY, DataSample(), CLASSES, "a.jpg")[:640]).any()


def test_classes_are_written_below_the_picture():
    """The annotated one above the predicted ones, of which the best comes first."""
    sample = DataSample().set_pred_score(torch.tensor([0.1, 0.9])).set_pred_label(1).set_gt_label(0)
    drawing = draw_prediction(GREY, sample, CLASSES)
    assert drawing.shape[1] == 640
    assert (drawing[:640] == 128).all()
    cat, cup = (
        [np.nonzero((strip == CLASSES.colour(i)).all(-1))[1] for strip in np.split(drawing[640:], 2)] for i in (0, 1)
    )
    assert len(cat[0])
    assert not len(cup[0])
    assert cup[1].max() < cat[1].min()


def test_a_segmentation_has_fills_and_a_legend():
    classes = Classes({"classes": ("background", "cat"), "palette": [(0, 0, 0), (250, 0, 0)]})
    labels = torch.zeros(1, 160, 160, dtype=torch.long)
    labels[:, 40:120, 40:120] = 1
    drawing = draw_prediction(GREY, SegDataSample(pred_sem_seg=PixelData(data=labels)), classes)
    assert drawing.shape[0] > 640
    picture, strip = drawing[:640], drawing[640:]
    assert (picture[320, 320] == np.round(np.array((128, 128, 128)) * 0.6 + np.array((250, 0, 0)) * 0.4)).all()
    assert (picture[10, 10] == 128).all(), "the background stays as it is"
    assert (strip == (250, 0, 0)).all(-1).any()


def test_classes_without_names_and_colours():
    assert Classes([{"classes": ("cat",)}, {"classes": ("sky",)}]).name(0) == "cat"  # of a ConcatDataset
    classes = Classes(None)
    assert classes.name(3) == "class 3"
    assert len({classes.colour(label) for label in range(100)}) == 100


@pytest.mark.parametrize("order", [1, -1])
def test_a_small_object_is_drawn_over_a_large_one(order):
    boxes, labels = [(10, 10, 150, 150), (60, 60, 100, 100)][::order], [0, 1][::order]
    drawing = draw_prediction(GREY, detections(boxes, labels, [0.9, 0.9], [mask_of(*box) for box in boxes]), CLASSES)
    red, _, blue = drawing[SCALE * 80, SCALE * 80].astype(int)
    assert blue > red


def test_many_objects_have_no_labels_that_would_cover_the_picture():
    boxes = [(x, y, x + 6, y + 6) for x in range(20, 150, 8) for y in range(20, 150, 8)]
    few, many = (
        (draw_prediction(GREY, detections(boxes[:n], [1] * n, [0.9] * n), CLASSES) != GREY[0, 0]).any(2).mean()
        for n in (len(boxes) // 2, len(boxes))
    )
    assert len(boxes) > 150 > len(boxes) // 2
    assert many < few


def test_the_legend_begins_with_the_largest_class_and_says_its_share():
    classes = Classes({"classes": ("sky", "cat", "cup"), "palette": [(0, 200, 0), (250, 0, 0), (0, 0, 250)]})
    labels = torch.zeros(160, 160, dtype=torch.long)
    labels[:40], labels[40:56] = 2, 1  # 65 %, 25 % and 10 % of the rows
    legend = overlays._draw_segmentation(GREY, labels, classes)[1]
    assert legend == [((0, 200, 0), "sky 65%"), ((0, 0, 250), "cup 25%"), ((250, 0, 0), "cat 10%")]


def test_beside_annotations_small_objects_are_named_below():
    """Text would cover them; the other object has its text above."""
    sample = detections([(20, 20, 28, 28), (60, 60, 120, 120)], [0, 1], [0.9, 0.9])
    sample.gt_instances = InstanceData(bboxes=torch.zeros(0, 4), labels=torch.zeros(0, dtype=int))
    assert draw_prediction(GREY, sample, CLASSES, side=320).shape[1] == 320, "no annotation is known"
    sample.gt_instances = InstanceData(bboxes=torch.tensor([[60.0, 60, 120, 120]]), labels=torch.tensor([1]))
    drawing = draw_prediction(GREY, sample, CLASSES, side=320)
    assert drawing.shape[1] == 2 * 320 + 8
    picture, strip = drawing[:320, 328:], drawing[320:, 328:]
    texts = [(picture == CLASSES.colour(label)).all(-1).sum() for label in (0, 1)]
    assert texts[0] < 250 < 500 < texts[1]
    swatches = [(strip == CLASSES.colour(label)).all(-1).any() for label in (0, 1)]
    assert swatches == [True, False]


def test_each_clip_has_a_row_of_the_contact_sheet():
    clips = torch.randint(0, 256, (2, 3, 5, 1, 1), dtype=torch.uint8).expand(2, 3, 5, 6, 7)  # frames of one colour each
    sheet = contact_sheet(clips)
    for view, time in np.ndindex(2, 5):
        y, x = 2 + view * (6 + 2), 2 + time * (7 + 2)
        assert (sheet[y : y + 6, x : x + 7, ::-1] == clips[view, :, time, 0, 0].numpy()).all()
        assert (sheet[y : y + 6, x - 2 : x] == 255).all()


@pytest.fixture
def run(tmp_path):
    """A runner as the hook sees it, and two batches of four images: one name in two folders among them."""
    samples = []
    for i in range(8):
        path = tmp_path / f"class{i % 2}" / f"{i // 2}.jpg"
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", (40, 30), (10 * i, 0, 0)).save(path)
        sample = DataSample(metainfo={"img_path": str(path)})
        samples.append(sample.set_gt_label(i % 2).set_pred_label(0).set_pred_score(torch.tensor([0.7, 0.3])))
    loader = SimpleNamespace(dataset=SimpleNamespace(metainfo={"classes": ("cat", "cup")}))
    drawn = []
    visualizer = SimpleNamespace(add_image=lambda name, image, step: drawn.append((name, image.shape, step)))
    runner = SimpleNamespace(val_dataloader=loader, test_dataloader=loader, visualizer=visualizer, iter=400)
    batches = [(torch.zeros(4, 3, 8, 8), samples[:4]), (torch.zeros(4, 3, 8, 8), samples[4:])]
    return runner, batches, drawn


def test_every_third_image_of_a_validation_goes_to_the_backends(run):
    runner, batches, drawn = run
    hook = OverlayHook(interval=3)
    for _ in range(2):
        hook.before_val_epoch(runner)
        for i, (inputs, outputs) in enumerate(batches):
            hook.after_val_iter(runner, i, {"inputs": inputs}, outputs)
    assert [(name, step) for name, _, step in drawn] == [("0", 400), ("1", 400), ("3", 400)] * 2
    (shape,) = {shape for _, shape, _ in drawn}
    assert shape[1] == 640
    assert shape[0] > 480, "annotation and prediction below the picture"


def test_all_of_a_test_go_into_the_folder(run, tmp_path):
    runner, batches, drawn = run
    hook = OverlayHook(interval=3, test_out_dir=str(tmp_path / "shown"))
    for i, (inputs, outputs) in enumerate(batches):
        views = [{"inputs": inputs}] * 2  # of test-time augmentation
        hook.after_test_iter(runner, i, views if i else {"inputs": inputs}, outputs)
    names = sorted(path.name for path in (tmp_path / "shown").iterdir())
    assert names == sorted(f"{i}{end}.png" for i in range(4) for end in ("", "_2"))
    with Image.open(tmp_path / "shown" / "3_2.png") as picture:
        assert np.asarray(picture)[100, 100].tolist() == [70, 0, 0], "red, as the file"
    assert not drawn


def test_hooks_need_neither_supervision_nor_matplotlib():
    code = 'sys.modules |= dict.fromkeys(("supervision", "matplotlib")); HOOKS.get("mmlisa.TrainingCurvesHook")'
    subprocess.run([sys.executable, "-c", f"import sys; from mmlisa.registry import HOOKS; {code}"], check=True)
