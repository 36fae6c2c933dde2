"""Confusion matrices against mmdet's, scikit-learn's and mmpretrain's, and the files that the command writes."""

import csv
import pickle
import runpy
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from mmengine.registry import MODELS, DefaultScope

import confusion_matrix
from mmlisa import cli, config_path
from mmlisa.training.config import load_config

NUM = 3


class Objects:
    """Objects in a grid of cells without overlap, and detections on some of them."""

    metainfo = {"classes": ("cat", "dog", "newt")}  # noqa: RUF012

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.infos, self.samples = [], []
        for image in range(5):
            cells = [(40 * x, 40 * y) for x in range(4) for y in range(3)]
            boxes = np.array([(x, y, x + 20 + image, y + 30) for x, y in cells], float)
            labels = rng.integers(0, NUM, len(cells))
            annotated, found = rng.random(len(cells)) < 0.7, rng.random(len(cells)) < 0.8
            self.infos.append(
                dict(
                    img_id=image + 7,
                    instances=[
                        dict(bbox=box.tolist(), bbox_label=int(label), ignore_flag=0)
                        for box, label in zip(boxes[annotated], labels[annotated], strict=True)
                    ],
                )
            )
            guesses = np.where(rng.random(len(cells)) < 0.3, rng.integers(0, NUM, len(cells)), labels)
            self.samples.append(
                dict(
                    img_id=image + 7,
                    pred_instances=dict(
                        bboxes=torch.tensor(boxes[found] + rng.uniform(-2, 2, boxes[found].shape)),
                        labels=torch.tensor(guesses[found]),
                        scores=torch.tensor(rng.uniform(0, 1, found.sum())),
                    ),
                )
            )

    def __len__(self):
        return len(self.infos)

    def get_data_info(self, index):
        return self.infos[index]


def count(counter, samples):
    counter.process(None, samples)
    counter.evaluate(len(samples))
    return counter.total


def test_objects():
    mmdet = pytest.importorskip("mmdet")
    tool = Path(mmdet.__file__).parent / ".mim" / "tools" / "analysis_tools" / "confusion_matrix.py"
    dataset = Objects(0)
    official = runpy.run_path(str(tool))["calculate_confusion_matrix"](dataset, dataset.samples, 0.4)
    official[:, -1] -= (
        official[:, :NUM].sum(1) - official.diagonal()
    )  # mmdet also counts what has another class as missed
    official[-1, -1] = 0
    found = count(confusion_matrix.build_counter("mmdet", dataset, NUM, 0.4), dataset.samples)
    np.testing.assert_array_equal(found, official)
    assert (found.sum(0) > 0).all()
    assert (found.sum(1) > 0).all()
    assert found[0, -1] != found[-1, 0]


def test_a_crowd_is_neither_right_nor_wrong():
    dataset = Objects(0)
    dataset.infos = [dict(img_id=7, instances=[dict(bbox=[0, 0, 90, 90], bbox_label=1, ignore_flag=1)])]
    inside = dict(bboxes=torch.tensor([[10.0, 10, 30, 30]]), labels=torch.tensor([1]), scores=torch.tensor([0.9]))
    counter = confusion_matrix.build_counter("mmdet", dataset, NUM, 0.4)
    assert not count(counter, [dict(img_id=7, pred_instances=inside)]).any()


def test_images_of_one_id_are_refused():
    """The annotations of one would be compared with the detections in both."""
    dataset = Objects(0)
    dataset.infos[3]["img_id"] = dataset.infos[1]["img_id"]
    with pytest.raises(ValueError, match="share an img_id; count each of the joined data sets by itself"):
        confusion_matrix.build_counter("mmdet", dataset, NUM, 0.4)


def test_pixels():
    sklearn = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(1)
    truth, guess = rng.integers(0, NUM, (2, 1, 8, 9)), rng.integers(0, NUM, (2, 1, 8, 9))
    truth[:, :, 0] = 255
    samples = [
        dict(gt_sem_seg=dict(data=torch.tensor(t)), pred_sem_seg=dict(data=torch.tensor(p)))
        for t, p in zip(truth, guess, strict=True)
    ]
    expected = sklearn.confusion_matrix(truth[truth != 255], guess[truth != 255])
    np.testing.assert_array_equal(count(confusion_matrix.build_counter("mmseg", None, NUM, 0), samples), expected)


def test_images():
    evaluation = pytest.importorskip("mmpretrain.evaluation")
    truth, guess = torch.tensor([0, 1, 2, 2, 1, 2]), torch.tensor([0, 2, 2, 2, 0, 1])
    samples = [dict(gt_label=t[None], pred_label=p[None]) for t, p in zip(truth, guess, strict=True)]
    found = count(confusion_matrix.build_counter("mmpretrain", None, NUM, 0), samples)
    np.testing.assert_array_equal(found, evaluation.ConfusionMatrix.calculate(guess, truth, NUM).numpy())
    with pytest.raises(ValueError, match="have no 'pred_label'"):
        count(confusion_matrix.build_counter("mmpretrain", None, NUM, 0), [dict(gt_label=truth)])


def test_images_of_several_classes_are_refused():
    sample = dict(gt_label=torch.tensor([0, 2]), pred_label=torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="have several classes for an image; a confusion matrix needs one"):
        count(confusion_matrix.build_counter("mmpretrain", None, NUM, 0), [sample])


def test_of_an_image_only_its_own_entries_are_kept():
    counter = confusion_matrix.build_counter("mmpretrain", None, 1000, 0)
    samples = [dict(gt_label=torch.tensor([i % 2]), pred_label=torch.tensor([999])) for i in range(6)]
    counter.process(None, samples)
    assert len(pickle.dumps(counter.results)) < 6_000, "a matrix of an image has 8 MB"
    counter.evaluate(5)  # the sixth fills up a batch of several processes
    assert (counter.total.sum(), counter.total[0, 999], counter.total[1, 999]) == (5, 3, 2)


def test_the_command(tmp_path, monkeypatch, capsys):
    pytest.importorskip("mmpretrain")
    cfg = load_config(config_path("classifier_hylisanet_demo.py"))
    with DefaultScope.overwrite_default_scope("mmpretrain"):
        model = MODELS.build(cfg.model)
    with torch.no_grad():  # everything is taken for the class 2
        model.head.fc2.weight.zero_()
        model.head.fc2.bias.copy_(torch.eye(8)[2])
    torch.save({"state_dict": model.state_dict()}, tmp_path / "two.pth")
    monkeypatch.setattr(cli, "_program", None)
    monkeypatch.setattr(sys, "argv", sys.argv)
    command = ["confusion-matrix", "classifier_hylisanet_demo.py", str(tmp_path / "two.pth")]
    options = [f"work_dir={tmp_path}", "test_dataloader.dataset.indices=12"]
    (tmp_path / "classifier_hylisanet_demo.py").write_text("the training's")
    cli.main([*command, "--out-dir", str(tmp_path / "out"), "--cfg-options", *options])
    assert "confusion.csv" in capsys.readouterr().out
    assert (tmp_path / "classifier_hylisanet_demo.py").read_text() == "the training's"
    names, *rows = csv.reader((tmp_path / "out" / "confusion.csv").open())
    counts = np.array([row[1:] for row in rows], int)
    assert [row[0] for row in rows] == names[1:]
    assert counts.sum() == counts[:, 2].sum() == 12
    picture = cv2.imread(str(tmp_path / "out" / "confusion.png"))
    assert picture.std() > 10
