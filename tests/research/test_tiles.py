"""The measurement of tiles: AP over whole photographs with more than a hundred objects, and trainings at their resolution."""

import numpy as np
import pytest

from mmlisa.deploy.runtime import Prediction
from research import tiles
from research.tree_crowns import Photograph


def photograph(count: int) -> Photograph:
    corners = np.stack(np.divmod(np.arange(count), 20), axis=1) * 30.0
    return Photograph("a", np.zeros((600, 600, 3), np.uint8), np.concatenate([corners, corners + 20], axis=1))


@pytest.mark.parametrize("kept", [150, 75])
def test_average_precision_counts_more_than_a_hundred_boxes(kept):
    truth = photograph(150)
    found = Prediction(truth.boxes[:kept], np.linspace(0.9, 0.5, kept), np.zeros(kept, np.int64))
    assert tiles.average_precision([truth], [found]) == pytest.approx(kept / 150, abs=0.01)


def test_boxes_of_another_photograph_do_not_count():
    first, second = photograph(4), photograph(3)
    nothing = Prediction(np.zeros((0, 4)), np.zeros(0), np.zeros(0, np.int64))
    assert tiles.average_precision([first, second], [nothing, nothing]) == 0
    swapped = Prediction(first.boxes[3:], np.ones(1), np.zeros(1, np.int64))
    assert tiles.average_precision([first, second], [nothing, swapped]) == 0


@pytest.mark.parametrize("operator", tiles.OPERATORS)
def test_training_and_test_images_keep_their_resolution(operator, tmp_path):
    cfg = tiles.build_config(operator, tmp_path)
    assert "Resize" not in [step["type"] for step in cfg.train_dataloader.dataset.pipeline]
    assert cfg.test_dataloader.dataset.pipeline[1]["scale_factor"] == 1
    assert cfg.train_cfg.max_iters == tiles.ITERATIONS == cfg.param_scheduler[-1].end


def test_table():
    row = dict(operator="LiSA", tile=None, ap50=0.125, detections=9, seconds=1.5, peak_bytes=2e6)
    text = tiles.to_markdown([row, dict(row, tile=256)])
    assert "| LiSA | whole | 12.5 | 9 | 1.50 | 2 |" in text
    assert "| LiSA | tiles of 256 | 12.5 |" in text
