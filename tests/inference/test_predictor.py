"""Checkpoints have the interface of exported files."""

from copy import deepcopy

import numpy as np
import pytest
from mmdet.registry import TRANSFORMS
from mmengine.registry import init_default_scope

from mmlisa import runtime
from mmlisa.inference.predictor import Predictor


def test_a_checkpoint_has_the_interface_of_an_exported_file(model, noise):
    found = model.predict(noise, score_threshold=0.0)
    assert found.boxes.shape == (len(found.scores), 4)
    assert found.masks.shape == (len(found.scores), 150, 190)
    assert len(found.scores) > 2
    middle = float(np.median(found.scores))
    assert len(model.predict(noise, middle).scores) == (found.scores >= middle).sum()
    from_array = model.predict(runtime.read_image(noise), 0.0)
    np.testing.assert_array_equal(from_array.boxes, found.boxes)


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
