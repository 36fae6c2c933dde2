"""What is read from a work dir's logs, and what is drawn of it."""

import json

import numpy as np
import pytest
from PIL import Image

from mmlisa.visualization.curves import _smooth, draw_curves, read_curves


def write_log(folder, *entries):
    folder = folder / "vis_data"
    folder.mkdir(parents=True)
    (folder / "scalars.json").write_text("".join(json.dumps(entry) + "\n" for entry in entries))


def train(iteration, loss, **more):
    return {"lr": 0.1, "loss": loss, "loss_cls": loss / 2, "iter": iteration, "step": iteration, **more}


def test_a_resumed_runs_entries_replace_those_it_repeats(tmp_path):
    write_log(tmp_path / "1", train(50, 4.0), train(100, 3.0), {"coco/bbox_mAP": 0.1, "step": 0}, train(150, 9.0))
    write_log(
        tmp_path / "2", train(150, 2.0), train(200, 1.0), {"coco/bbox_mAP": 0.3, "coco/bbox_mAP_l": 0.9, "step": 0}
    )
    curves = read_curves(tmp_path)
    assert curves["loss"] == [(50, 4.0), (100, 3.0), (150, 2.0), (200, 1.0)]
    assert curves["coco/bbox_mAP"] == [(100, 0.1), (200, 0.3)]
    assert set(curves) == {"loss", "loss_cls", "lr", "coco/bbox_mAP"}


def test_epochs_become_iterations(tmp_path):
    write_log(
        tmp_path / "1",
        train(40, 2.0, epoch=1), {"mIoU": 30.0, "step": 1}, train(80, 1.0, epoch=2), {"mIoU": 40.0, "step": 2},
    )  # fmt: skip
    assert read_curves(tmp_path)["mIoU"] == [(40, 30.0), (80, 40.0)]


@pytest.mark.parametrize("step", [105, 2], ids=["by iteration", "by epoch"])
def test_a_resumed_run_may_begin_with_a_validation(tmp_path, step):
    """The first training was interrupted in it, after 105 iterations."""
    write_log(tmp_path / "1", train(50, 4.0), {"mIoU": 20.0, "step": step // 2}, train(100, 3.0))
    write_log(tmp_path / "2", {"mIoU": 30.0, "step": step}, train(150, 2.0))
    curves = read_curves(tmp_path)
    assert curves["mIoU"] == [(max(50, step // 2), 20.0), (max(100, step), 30.0)]
    write_log(tmp_path / "3", {"mIoU": 40.0, "step": 160 if step > 100 else 3})  # of a training that was complete
    assert read_curves(tmp_path)["mIoU"][2:] == [(160 if step > 100 else 150, 40.0)]


def test_a_validation_between_two_entries_stands_at_its_iteration(tmp_path):
    write_log(
        tmp_path / "1", train(100, 2.0), {"mIoU": 30.0, "step": 102}, train(110, 1.0), {"mIoU": 40.0, "step": 204}
    )
    assert read_curves(tmp_path)["mIoU"] == [(102, 30.0), (204, 40.0)]


def test_a_new_training_in_the_folder_of_another_replaces_it(tmp_path):
    write_log(tmp_path / "1", train(50, 4.0), train(100, 3.0), {"mIoU": 70.0, "step": 100})
    write_log(tmp_path / "2", train(50, 2.0))
    assert read_curves(tmp_path) == {"loss": [(50, 2.0)], "loss_cls": [(50, 1.0)], "lr": [(50, 0.1)]}


def test_a_folder_without_a_log_and_a_damaged_log_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=f"{tmp_path} has no log"):
        read_curves(tmp_path)
    write_log(tmp_path / "1", train(50, 4.0))
    with (tmp_path / "1" / "vis_data" / "scalars.json").open("a") as log:
        log.write('{"loss": 1')
    with pytest.raises(ValueError, match=r"scalars\.json:2 is not JSON"):
        read_curves(tmp_path)


@pytest.mark.parametrize("labels", [["one"], ["one", "two"]])
def test_drawing(tmp_path, labels):
    curves = {
        "loss": [(i, 100 / i) for i in range(1, 101)],
        "lr": [(1, 0.1), (100, 0.0)],
        "coco/bbox_mAP": [(50, 0.2), (100, float("nan"))],
        "coco/bbox_mAP_50": [(50, 0.4), (100, 0.3)],
    }
    draw_curves(dict.fromkeys(labels, curves), tmp_path / "curves.png")
    with Image.open(tmp_path / "curves.png") as picture:
        panels = 3 if len(labels) == 1 else 4
        assert picture.size == (pytest.approx(panels * 576, abs=1), 480)


def test_a_curve_is_smoothed_over_a_fiftieth_of_the_run():
    """Each mean stands at the last of its iterations."""
    values = np.random.default_rng(0).random(200)
    iterations, smooth = _smooth([(10 * i, value) for i, value in enumerate(values, 1)])
    assert iterations.tolist() == list(range(40, 2001, 10))
    np.testing.assert_allclose(smooth, [values[end - 4 : end].mean() for end in range(4, 201)])


def test_every_curve_stands_in_its_panel_and_the_star_at_the_best(figures, tmp_path):
    curves = {
        "loss": [(10, 3.0), (20, 2.0), (30, 1.0)],
        "lr": [(10, 0.1), (30, 0.05)],
        "coco/bbox_mAP": [(10, 0.2), (20, 0.4), (30, 0.3)],
    }
    draw_curves({"run": curves}, tmp_path / "curves.png")
    loss, rate, metric = figures[0].axes
    panels = {"loss in training": loss, "learning rate": rate, "validation": metric}
    assert [axes.get_title() for axes in figures[0].axes] == list(panels)
    for axes, name in zip((loss, rate, metric), curves, strict=True):
        assert list(zip(*axes.lines[0].get_data(), strict=True)) == curves[name]
    assert metric.lines[1].get_marker() == "*"
    assert [float(x[0]) for x in metric.lines[1].get_data()] == [20, 0.4]
    assert metric.get_legend_handles_labels()[1][0] == "bbox AP: best 0.4 at 20"
    assert metric.get_ylabel() == "0 to 1"


def test_the_star_never_stands_at_a_value_that_is_not_finite(figures, tmp_path):
    curves = {"loss": [(1, 1.0)], "coco/bbox_mAP": [(10, float("nan")), (20, 0.2), (30, 0.4), (40, float("nan"))]}
    draw_curves({"run": curves}, tmp_path / "curves.png")
    assert figures[0].axes[2].get_legend_handles_labels()[1] == ["bbox AP: best 0.4 at 30"]


def test_several_runs_have_a_panel_per_metric_and_a_line_per_run(figures, tmp_path):
    runs = {
        name: {"loss": [(1, k)], "loss_cls": [(1, 9.0)], "mIoU": [(1, 10.0 * k)], "aAcc": [(1, 20.0 * k)]}
        for k, name in enumerate(("a", "b"), 1)
    }
    draw_curves(runs, tmp_path / "curves.png")
    loss, _, *metrics = figures[0].axes
    assert [line.get_label() for line in loss.lines] == ["a", "b"]
    assert [axes.get_title() for axes in metrics] == ["aAcc", "mIoU"]
    assert [line.get_ydata()[0] for line in metrics[0].lines[::2]] == [20.0, 40.0]
    assert [line.get_ydata()[0] for line in metrics[1].lines[::2]] == [10.0, 20.0]
