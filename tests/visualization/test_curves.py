"""What is read from a work dir's logs, whose last lines are cut, and what is drawn of it."""

import json

import numpy as np
import pytest

from mmlisa.visualization.curves import draw_curves, read_curves


def train(iteration, loss, **more):
    return {"lr": 0.1, "loss": loss, "iter": iteration, "step": iteration, **more}


@pytest.mark.parametrize(
    ("logs", "loss", "metric"),
    [
        (  # entries of a resumed run replace those it repeats
            [[train(50, 4.0), train(100, 3.0), {"mIoU": 0.1, "step": 0}, train(150, 9.0)],
             [train(150, 2.0), train(200, 1.0), {"mIoU": 0.3, "mIoU_l": 0.9, "step": 0}]],
            [(50, 4.0), (100, 3.0), (150, 2.0), (200, 1.0)], [(100, 0.1), (200, 0.3)],
        ),
        (  # epochs become iterations
            [[train(40, 2.0, epoch=1), {"mIoU": 30.0, "step": 1}, train(80, 1.0, epoch=2), {"mIoU": 40.0, "step": 2}]],
            [(40, 2.0), (80, 1.0)], [(40, 30.0), (80, 40.0)],
        ),
        (  # a validation between two entries stands at its iteration
            [[train(100, 2.0), {"mIoU": 30.0, "step": 102}, train(110, 1.0), {"mIoU": 40.0, "step": 204}]],
            [(100, 2.0), (110, 1.0)], [(102, 30.0), (204, 40.0)],
        ),
        (  # a new training in the folder of another replaces it
            [[train(50, 4.0), train(100, 3.0), {"mIoU": 70.0, "step": 100}], [train(50, 2.0)]],
            [(50, 2.0)], None,
        ),
    ],
)  # fmt: skip
def test_curves_of_the_logs(tmp_path, logs, loss, metric):
    for number, entries in enumerate(logs):
        folder = tmp_path / str(number) / "vis_data"
        folder.mkdir(parents=True)
        (folder / "scalars.json").write_text("".join(json.dumps(entry) + "\n" for entry in entries) + '{"lo')
    curves = read_curves(tmp_path)
    assert (curves["loss"], curves.get("mIoU")) == (loss, metric)
    assert curves.keys() <= {"loss", "lr", "mIoU"}


def test_every_curve_stands_in_its_panel_and_the_star_at_the_best(figures, tmp_path):
    curves = {
        "loss": [(10, 3.0), (20, 2.0), (30, 1.0)],
        "lr": [(10, 0.1), (30, 0.05)],
        "coco/bbox_mAP": [(10, 0.2), (20, 0.4), (30, float("nan"))],
    }
    draw_curves(curves, tmp_path / "curves.png")
    loss, rate, metric = figures[0].axes
    assert [axes.get_title() for axes in figures[0].axes] == ["loss in training", "learning rate", "validation"]
    for axes, name in zip((loss, rate, metric), curves, strict=True):
        np.testing.assert_array_equal(np.transpose(axes.lines[0].get_data()), curves[name])
    assert metric.lines[1].get_marker() == "*"
    assert [float(x[0]) for x in metric.lines[1].get_data()] == [20, 0.4]
    assert metric.get_legend_handles_labels()[1][0] == "coco/bbox_mAP: best 0.4 at 20"
