"""Checks of a config before anything is built. The checks of its data and schedule are in test_checks.py."""

import pytest
from mmengine.config import Config

from mmlisa.training.config_checks import check_data


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize(
    ("topk", "classes", "right"),
    [((1, 5), 4, False), ((1, 5), 5, True), (2, 2, True), (3, 2, False), ((1,), 2, True), ((), 2, True)],
)
def test_the_k_best_of_fewer_classes_are_refused_before_training(listed, topk, classes, right):
    metric = dict(type="Accuracy", topk=topk)
    cfg = Config(dict(model=dict(head=dict(num_classes=classes)), val_evaluator=[metric] if listed else metric))
    if right:
        check_data(cfg, "train", "val")
    else:
        setting = r"val_evaluator\.0\.topk" if listed else r"val_evaluator\.topk"
        with pytest.raises(ValueError, match=rf"{setting}=.*num_classes={classes} .*{setting}=1"):
            check_data(cfg, "train", "val")


def test_data_of_another_storage_or_that_download_themselves_need_no_folder():
    remote = dict(type="CocoDataset", data_root="nosuch/", ann_file="a.json", backend_args=dict(backend="petrel"))
    for dataset in (
        remote,
        {**remote, "backend_args": None, "file_client_args": dict(backend="petrel")},
        dict(type="CIFAR10", data_root="nosuch"),
        dict(type="mmpretrain.MNIST", data_root="nosuch"),
    ):
        check_data(Config(dict(train_dataloader=dict(dataset=dataset))), "train")
    for dataset in ({**remote, "backend_args": None}, dict(type="CIFAR10", data_root="nosuch", download=False)):
        with pytest.raises(FileNotFoundError, match="nosuch"):
            check_data(Config(dict(train_dataloader=dict(dataset=dataset))), "train")


def test_models_without_a_single_head_have_no_top_k():
    check_data(Config(dict(model=dict(roi_head=dict()), val_evaluator=dict(type="CocoMetric"))), "val")
    check_data(Config(dict(model=dict(head=[dict(num_classes=2)]), val_evaluator=dict(type="Accuracy", topk=5))), "val")
    check_data(Config(dict(val_evaluator=None)), "val")
