"""Exported models are compared with the library's own prediction, from a picture's file to its results."""

import re
from copy import deepcopy

import numpy as np
import pytest

from helpers.whole_models import DETECTORS, build
from mmlisa.export.library import _different_detections, compare_with_library
from mmlisa.export.metadata import describe
from mmlisa.export.whole import EndToEnd
from mmlisa.runtime import Prediction
from mmlisa.training.config import load_config

# One of each task; the classifier's pipeline has a fixed size.
EVERY_COMMIT = {"mask_rcnn_hylisanet": None, "semantic_fpn_hylisanet": None, "classifier_hylisanet": (64, 64)}


def compare(model, name, size=None, change=lambda steps: None):
    cfg = load_config(f"{name}_demo.py")
    change(cfg.test_dataloader.dataset.pipeline)
    module = EndToEnd(model)
    return compare_with_library(cfg, module, describe(cfg, module, {}), size)


def override(part, **methods):
    """Give a part of a model another class, whose methods change what the earlier ones return."""
    kind = type(part)

    def changed(key, change):
        earlier = getattr(kind, key)
        return lambda self, *args, **options: change(earlier(self, *args, **options))

    part.__class__ = type("Own", (kind,), {key: changed(key, change) for key, change in methods.items()})


@pytest.mark.parametrize(
    "name",
    [*EVERY_COMMIT, *(pytest.param(name, marks=pytest.mark.nightly) for name in DETECTORS if name not in EVERY_COMMIT)],
)
def test_the_librarys_prediction_agrees(name):
    model = build(name)
    before = deepcopy(getattr(model, "roi_head", model).__dict__.get("test_cfg"))
    sentence, inputs = compare(model, name, EVERY_COMMIT.get(name))
    if size := EVERY_COMMIT.get(name):
        assert f"agrees on random pictures: {size[0]}x{size[1]}" in sentence
        assert [each.shape for each in inputs] == [(1, 3, *size)]
    else:
        assert re.search(r"pictures: 480x800 \(\d\d+ det.*, 800x480 \(\d\d+ det|800x480 \(\d classes", sentence)
        across, upright = (each.shape[2:] for each in inputs)
        assert across[0] < across[1]
        assert upright[0] > upright[1]
    assert getattr(model, "roi_head", model).__dict__.get("test_cfg") == before, "the threshold is the config's again"


def other_labels(results):
    for each in results:
        each.labels = (each.labels + 1) % 3
    return results


def offset(data):
    return data | dict(inputs=data["inputs"] + 0.1)


def next_class(samples):
    for sample in samples:
        sample.pred_sem_seg.data += 1
    return samples


def reversed_scores(samples):
    for sample in samples:
        sample.pred_score = sample.pred_score.flip(0)
    return samples


def with_tracks(samples):
    for sample in samples:
        sample.pred_track_instances = sample.pred_instances
    return samples


@pytest.mark.parametrize(
    ("name", "part", "methods", "message"),
    [
        ("mask_rcnn_hylisanet", "roi_head", dict(predict=other_labels), "Own: the library predicts .* objects"),
        ("mask_rcnn_hylisanet", "", dict(test_step=with_tracks), "pred_track_instances"),
        ("mask_rcnn_hylisanet", "data_preprocessor", dict(forward=offset), "Own prepare images in another way"),
        ("semantic_fpn_hylisanet", "", dict(postprocess_result=next_class), "Own: .* of the pixels"),
        ("classifier_hylisanet", "head", dict(predict=reversed_scores), "Own: .* other probabilities"),
        ("classifier_hylisanet", "", dict(predict=reversed_scores), "Own: .* other probabilities"),
    ],
)
def test_a_prediction_of_ones_own_is_refused(name, part, methods, message):
    model = build(name)
    module = EndToEnd(model)
    override(model.get_submodule(part), **methods)
    cfg = load_config(f"{name}_demo.py")
    with pytest.raises(ValueError, match=message):
        compare_with_library(cfg, module, describe(cfg, module, {}), EVERY_COMMIT[name])


def test_an_option_of_reading_is_refused():
    def change(steps):
        steps[0].to_float32 = True

    with pytest.raises(ValueError, match="grey levels"):
        compare(build("semantic_fpn_hylisanet"), "semantic_fpn_hylisanet", change=change)


def test_a_size_that_the_pipeline_does_not_make_is_named():
    sentence, inputs = compare(build("semantic_fpn_hylisanet"), "semantic_fpn_hylisanet", (64, 64))
    assert sentence == "not compared with the library: its pipeline makes no picture of 64x64"
    assert not inputs


def detections(**changes):
    boxes = np.float32([[0, 0, 10, 10], [5, 5, 20, 20]])
    masks = np.zeros((2, 20, 20), bool)
    masks[:, :8, :8] = True
    return Prediction(
        **dict(boxes=boxes, scores=np.float32([0.5, 0.5]), labels=np.array([0, 1]), masks=masks) | changes
    )


def test_detections_of_equal_scores_may_change_places():
    one = detections()
    other = Prediction(one.boxes[::-1], one.scores[::-1], one.labels[::-1], one.masks[::-1])
    assert _different_detections(one, other) == ""


@pytest.mark.parametrize(
    "changes",
    [
        dict(boxes=detections().boxes + 1),
        dict(scores=np.float32([0.5, 0.49])),
        dict(labels=np.array([1, 0])),
        dict(masks=~detections().masks),
        dict(masks=None),
        dict(boxes=np.zeros((0, 4)), scores=np.zeros(0), labels=np.zeros(0, int), masks=np.zeros((0, 20, 20), bool)),
    ],
)
def test_other_detections_are_found(changes):
    assert _different_detections(detections(), detections(**changes))
    assert _different_detections(detections(**changes), detections())
