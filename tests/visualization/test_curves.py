"""What is read from a work dir's logs, and what is drawn of it."""

import json

import numpy as np

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


def test_a_validation_between_two_entries_stands_at_its_iteration(tmp_path):
    write_log(
        tmp_path / "1", train(100, 2.0), {"mIoU": 30.0, "step": 102}, train(110, 1.0), {"mIoU": 40.0, "step": 204}
    )
    assert read_curves(tmp_path)["mIoU"] == [(102, 30.0), (204, 40.0)]


def test_a_new_training_in_the_folder_of_another_replaces_it(tmp_path):
    write_log(tmp_path / "1", train(50, 4.0), train(100, 3.0), {"mIoU": 70.0, "step": 100})
    write_log(tmp_path / "2", train(50, 2.0))
    assert read_curves(tmp_path) == {"loss": [(50, 2.0)], "loss_cls": [(50, 1.0)], "lr": [(50, 0.1)]}


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
    draw_curves(curves, tmp_path / "curves.png")
    loss, rate, metric = figures[0].axes
    panels = {"loss in training": loss, "learning rate": rate, "validation": metric}
    assert [axes.get_title() for axes in figures[0].axes] == list(panels)
    for axes, name in zip((loss, rate, metric), curves, strict=True):
        assert list(zip(*axes.lines[0].get_data(), strict=True)) == curves[name]
    assert metric.lines[1].get_marker() == "*"
    assert [float(x[0]) for x in metric.lines[1].get_data()] == [20, 0.4]
    assert metric.get_legend_handles_labels()[1][0] == "coco/bbox_mAP: best 0.4 at 20"
    assert metric.get_ylabel() == "0 to 1"


def test_the_star_never_stands_at_a_value_that_is_not_finite(figures, tmp_path):
    curves = {"loss": [(1, 1.0)], "coco/bbox_mAP": [(10, float("nan")), (20, 0.2), (30, 0.4), (40, float("nan"))]}
    draw_curves(curves, tmp_path / "curves.png")
    assert figures[0].axes[2].get_legend_handles_labels()[1] == ["coco/bbox_mAP: best 0.4 at 30"]
