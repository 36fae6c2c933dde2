"""Where things are drawn, in which colour, and that labels stay off the objects."""

import cv2
import numpy as np
import pytest
import torch
from mmdet.structures import DetDataSample
from mmengine.structures import InstanceData, PixelData
from mmpretrain.structures import DataSample
from mmseg.structures import SegDataSample

from mmlisa.visualization import overlays
from mmlisa.visualization.overlays import Classes, draw_prediction, free_path, has_truth, write_video

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


def test_an_object_is_filled_lightly_and_its_label_lies_outside():
    box = (40, 60, 100, 120)
    drawing = draw_prediction(GREY, detections([box], [1], [0.9], [mask_of(*box)]), CLASSES)
    assert drawing.shape == (640, 640, 3)
    left, top, right, bottom = (SCALE * side for side in box)
    inside = drawing[top + 8 : bottom - 8, left + 8 : right - 8]
    expected = np.array((128, 128, 128)) * 0.7 + np.array((0, 0, 250)) * 0.3
    assert (inside == expected.round()).all(), "nothing but the fill is drawn inside"
    outside = changed(drawing)
    outside[top - 2 : bottom + 3, left - 2 : right + 3] = False
    rows, columns = np.nonzero(outside)
    assert rows.max() < top, "above the object"
    assert columns.min() >= left
    assert (rows.max() - rows.min()) < 30


def test_the_outline_of_an_enlarged_mask_has_no_steps():
    """A diagonal edge keeps its straight line; a picture of full size keeps every pixel."""
    diagonal = np.tri(160, dtype=bool)
    enlarged = overlays._resize_mask(diagonal, overlays._Canvas(np.zeros((640, 640, 3), np.uint8), 4.0, None))
    edge = enlarged[:, 40:600].argmax(0) - np.arange(40, 600)
    assert np.ptp(edge) <= 1
    single = np.random.default_rng(0).random((160, 160)) < 0.2  # pixels that smoothing would remove
    same = overlays._resize_mask(single, overlays._Canvas(np.zeros((160, 160, 3), np.uint8), 1.0, None))
    np.testing.assert_array_equal(same, single)


def test_a_picture_of_large_size_is_not_enlarged():
    large = np.full((700, 900, 3), 128, np.uint8)
    assert draw_prediction(large, detections([], [], []), CLASSES).shape == large.shape


@pytest.mark.parametrize("side", [160, 700])
def test_the_picture_of_a_caller_is_not_drawn_on(side):
    picture = np.full((side, side, 3), 128, np.uint8)
    assert changed(draw_prediction(picture, detections([(10, 10, 90, 90)], [0], [0.9]), CLASSES)).any()
    assert not changed(picture).any()


@pytest.mark.parametrize(
    "box", [(0, 0, 160, 160), (0, 0, 160, 40), (0, 0, 40, 160), (130, 130, 160, 160), (0, 0, 3, 3), (0, 157, 3, 160)]
)
def test_labels_stay_in_the_picture(box):
    """Two of them at any rim: both can be read, so both have their background's whole size."""
    drawing = draw_prediction(GREY, detections([box, box], [0, 1], [0.9, 0.8]), CLASSES)
    for colour in ((250, 0, 0), (0, 0, 250)):
        rows = np.nonzero((drawing == colour).all(-1))[0]
        assert len(rows) > 300, "a label's background"
        assert rows.max() < 640


def test_labels_avoid_other_objects():
    """Above the lower object lies another: its label goes elsewhere."""
    boxes = [(40, 20, 100, 78), (40, 80, 100, 140)]
    masks = [mask_of(*box) for box in boxes]
    drawing = draw_prediction(GREY, detections(boxes, [0, 1], [0.9, 0.8], masks), CLASSES)
    upper = drawing[SCALE * 20 + 8 : SCALE * 78 - 8, SCALE * 40 + 8 : SCALE * 100 - 8]
    assert (upper == upper[0, 0]).all()


def test_scores_below_the_threshold_are_not_drawn():
    sample = detections([(10, 10, 90, 90)], [0], [0.29])
    assert not changed(draw_prediction(GREY, sample, CLASSES, score_threshold=0.3)).any()
    assert changed(draw_prediction(GREY, sample, CLASSES, score_threshold=0.2)).any()


def test_annotations_are_drawn_on_the_left():
    sample = detections([(10, 10, 90, 90)], [0], [0.9])
    assert not has_truth(sample)
    sample.gt_instances = InstanceData(bboxes=torch.tensor([[100.0, 100.0, 150.0, 150.0]]), labels=torch.tensor([1]))
    assert has_truth(sample)
    drawing = draw_prediction(GREY, sample, CLASSES, with_truth=True)
    assert drawing.shape[1] == 2 * 640 + 8
    halves = drawing[:, :640], drawing[:, 648:]
    blue, red = (
        ((half == colour).all(-1)).sum() for half, colour in zip(halves, ((0, 0, 250), (250, 0, 0)), strict=True)
    )
    assert blue > 300
    assert red > 300
    assert not (halves[0] == (250, 0, 0)).all(-1).any()


def test_an_annotated_class_is_written_above_the_predicted_ones():
    sample = DataSample().set_pred_score(torch.tensor([0.1, 0.9])).set_pred_label(1).set_gt_label(0)
    drawing = draw_prediction(GREY, sample, CLASSES, with_truth=True)
    assert drawing.shape[1] == 640
    first, second = np.split(drawing[640:], 2)
    assert (first == CLASSES.colour(0)).all(-1).any()
    assert not (first == CLASSES.colour(1)).all(-1).any()
    assert (second == CLASSES.colour(1)).all(-1).any()


def test_a_segmentation_has_fills_and_a_legend():
    classes = Classes({"classes": ("background", "cat"), "palette": [(0, 0, 0), (250, 0, 0)]})
    labels = torch.zeros(1, 160, 160, dtype=torch.long)
    labels[:, 40:120, 40:120] = 1
    drawing = draw_prediction(GREY, SegDataSample(pred_sem_seg=PixelData(data=labels)), classes)
    assert drawing.shape[0] > 640
    picture, strip = drawing[:640], drawing[640:]
    assert (picture[320, 320] == np.round(np.array((128, 128, 128)) * 0.7 + np.array((250, 0, 0)) * 0.3)).all()
    assert (picture[10, 10] == 128).all(), "the background stays as it is"
    assert (strip == (250, 0, 0)).all(-1).any()


def test_a_class_is_written_below_the_picture():
    sample = DataSample().set_pred_score(torch.tensor([0.1, 0.9])).set_pred_label(1)
    drawing = draw_prediction(GREY, sample, CLASSES)
    assert (drawing[:640] == 128).all()
    columns = {
        name: np.nonzero((drawing[640:] == CLASSES.colour(i)).all(-1))[1] for i, name in enumerate(("cat", "cup"))
    }
    assert columns["cup"].max() < columns["cat"].min(), "the best first"


def test_drawings_of_one_size_whatever_is_found():
    """A video has one size."""
    shapes = set()
    for top in (0, 40):
        labels = torch.zeros(1, 160, 160, dtype=torch.long)
        labels[:, :top] = 1
        shapes.add(draw_prediction(GREY, SegDataSample(pred_sem_seg=PixelData(data=labels)), CLASSES).shape)
    assert len(shapes) == 1


def test_a_video_keeps_its_colours(tmp_path):
    write_video(tmp_path / "red.mp4", [np.full((64, 64, 3), (200, 0, 0), np.uint8)] * 3, 5)
    _, frame = cv2.VideoCapture(str(tmp_path / "red.mp4")).read()
    np.testing.assert_allclose(frame[32, 32], (0, 0, 200), atol=20)  # BGR


def test_a_video_is_whole_or_absent(tmp_path):
    def frames():
        yield np.zeros((64, 64, 3), np.uint8)
        raise ValueError("damaged")

    with pytest.raises(ValueError, match="damaged"):
        write_video(tmp_path / "half.mp4", frames(), 5)
    write_video(tmp_path / "none.mp4", [], 5)
    assert not list(tmp_path.iterdir())


def test_a_sample_without_a_prediction_is_refused():
    with pytest.raises(ValueError, match="pred_label"):
        draw_prediction(GREY, DataSample(), CLASSES)


def test_classes_without_names_and_colours():
    assert Classes([{"classes": ("cat",)}, {"classes": ("sky",)}]).name(0) == "cat"  # of a ConcatDataset
    classes = Classes(None)
    assert classes.name(3) == "class 3"
    assert len({classes.colour(label) for label in range(100)}) == 100


def test_free_path(tmp_path):
    taken = set()
    names = [free_path(tmp_path / name, taken).name for name in ("a.png", "a.png", "b.png", "a_2.png", "a.png")]
    assert names == ["a.png", "a_2.png", "b.png", "a_2_2.png", "a_3.png"]


@pytest.mark.parametrize("order", [1, -1])
def test_a_small_object_is_drawn_over_a_large_one(order):
    large, small = (10, 10, 150, 150), (60, 60, 100, 100)
    boxes, labels = [large, small][::order], [0, 1][::order]
    masks = [mask_of(*box) for box in boxes]
    drawing = draw_prediction(GREY, detections(boxes, labels, [0.9, 0.9], masks), CLASSES)
    outline = drawing[SCALE * 80, SCALE * 60 - 2 : SCALE * 60 + 3]
    assert (np.abs(outline.astype(int) - (0, 0, 250)) <= 5).all(-1).any(), "the outline of the small one is whole"
    first = np.array((128, 128, 128)) * 0.7 + np.array((250, 0, 0)) * 0.3
    assert (drawing[SCALE * 80, SCALE * 80] == (first.round() * 0.7 + np.array((0, 0, 250)) * 0.3).round()).all()


def test_the_legend_begins_with_the_largest_class_and_says_its_share():
    classes = Classes({"classes": ("sky", "cat", "cup"), "palette": [(0, 200, 0), (250, 0, 0), (0, 0, 250)]})
    labels = torch.zeros(160, 160, dtype=torch.long)
    labels[:40], labels[40:56] = 2, 1  # 65 %, 25 % and 10 % of the rows
    legend = overlays._draw_segmentation(overlays._canvas(GREY), labels, classes)
    assert legend == [((0, 200, 0), "sky 65%"), ((0, 0, 250), "cup 25%"), ((250, 0, 0), "cat 10%")]
