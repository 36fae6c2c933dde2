"""Evaluations that cannot work are refused before the first iteration; valid ones, and unknown ones, are not."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.evaluator import Evaluator
from mmengine.hooks import CheckpointHook, EarlyStoppingHook
from mmengine.registry import METRICS
from mmengine.runner import TestLoop as Tests
from mmengine.runner import ValLoop
from pycocotools import mask
from torch import nn

from helpers.coco import coco
from helpers.toy_runner import VALIDATION, ToyRegression, runner
from mmlisa.training import metrics as module
from mmlisa.training.metrics import check_evaluation, check_objects
from mmlisa.training.runner import train


class Classifier(nn.Module):
    __module__ = "mmlisa.toy"


class Validation(ValLoop):
    """A loop of another library, such as mmdet's for teachers and students, which prefixes the keys."""


class Objects:
    """mmdet's data set, with the ignore flags of the objects in each image."""

    def __init__(self, *flags):
        self.flags = flags

    def __len__(self):
        return len(self.flags)

    def get_data_info(self, index):
        return dict(instances=[dict(ignore_flag=flag) for flag in self.flags[index]])


def check(*metrics, hooks=(), loop=ValLoop, classes=("cat",), dataset=None, model=None, cfg=None) -> list[str]:
    """Check a runner with metrics and hooks, and return its warnings."""
    built = loop.__new__(loop)
    built.evaluator = Evaluator([METRICS.build(each) if isinstance(each, dict) else each for each in metrics])
    built.evaluator.dataset_meta = dict(classes=classes)
    built.dataloader = SimpleNamespace(dataset=Objects([0]) if dataset is None else dataset)
    warnings = []
    made = SimpleNamespace(
        val_loop=built,
        test_loop=built,
        hooks=list(hooks),
        model=model or Classifier(),
        cfg=Config(cfg or {}),
        logger=SimpleNamespace(warning=warnings.append),
    )
    check_evaluation(made, "test" if loop is Tests else "val")
    return warnings


def files(folder, content=None, **options) -> dict:
    (folder / "a.json").write_text(json.dumps(content or coco()))
    return dict(ann_file=str(folder / "a.json"), metric=["bbox", "segm"], **options)


ACCURACY = dict(type="mmpretrain.Accuracy")


def evaluate(metric, folder) -> dict[str, float]:
    """The results of a metric for one image."""
    name = type(metric).__name__
    if name == "CocoMetric":
        inside = mask.encode(np.asfortranarray(np.pad(np.ones((10, 10), np.uint8), ((2, 18), (2, 28)))))
        found = dict(
            bboxes=torch.tensor([[2.0, 2, 12, 12]]), scores=torch.ones(1), labels=torch.zeros(1, dtype=torch.long)
        )
        metric.process({}, [dict(img_id=1, ori_shape=(30, 40), pred_instances=found | dict(masks=[inside]))])
    elif name == "Accuracy":
        metric.process({}, [dict(pred_score=torch.tensor([0.1, 0.7, 0.2]), gt_label=torch.tensor([1]))])
    else:
        values = dict(data=torch.zeros(1, 4, 6, dtype=torch.long))
        metric.process({}, [dict(img_path=f"{folder}/a.png", pred_sem_seg=values, gt_sem_seg=values)])
    return metric.evaluate(1)


COCO_OPTIONS = [
    {},
    dict(classwise=True),
    dict(metric="proposal", classwise=True),
    dict(metric_items=["mAP", "AR@100"]),
    dict(prefix="a"),
]
IOU_OPTIONS = [dict(iou_metrics="mIoU"), dict(iou_metrics=["mDice"]), dict(iou_metrics=["mIoU", "mFscore"])]


@pytest.mark.parametrize(
    "cfg",
    [
        *(dict(options, type=f"{library}.CocoMetric") for library in ("mmdet", "mmlisa") for options in COCO_OPTIONS),
        *(dict(options, type=f"{library}.IoUMetric") for library in ("mmseg", "mmlisa") for options in IOU_OPTIONS),
        dict(type="mmlisa.IoUMetric", classwise=True, iou_metrics=["mIoU", "mFscore"]),
        dict(type="mmlisa.PairedIoUMetric", classwise=True),
        dict(ACCURACY, topk=(1, 3)),
        dict(ACCURACY, topk=2, thrs=(0.5, None)),
    ],
    ids=str,
)
def test_the_keys_are_those_of_the_results(tmp_path, cfg):
    if "Coco" in cfg["type"]:
        cfg = files(tmp_path) | cfg
    if "Paired" in cfg["type"]:
        cfg = dict(cfg, data_root=str(tmp_path), predictions=str(tmp_path / "out"))
    metric = METRICS.build(dict(cfg))
    metric.dataset_meta = dict(classes=("cat",))
    keys = [f"{metric.prefix}/{key}" if metric.prefix else key for key in module._KEYS[module._name(metric)](metric)]
    assert sorted(set(keys)) == sorted(evaluate(metric, tmp_path))


HOOKS = [
    (CheckpointHook(save_best="top1"), r"save_best='top1'.* returns accuracy/top1\. Did you mean 'accuracy/top1'\?$"),
    (CheckpointHook(save_best=["accuracy/top1", "accuracy/top5"], rule="greater"), "save_best='accuracy/top5'"),
    (EarlyStoppingHook(monitor="loss"), r"EarlyStoppingHook\.monitor='loss'"),
]


@pytest.mark.parametrize(("hook", "message"), HOOKS)
def test_metrics_that_the_validation_does_not_return_are_named(hook, message):
    with pytest.raises(ValueError, match=message):
        check(ACCURACY, hooks=[hook])


def test_the_metric_of_a_schedule_is_checked():
    with pytest.raises(ValueError, match=r"ReduceOnPlateauLR\.monitor='loss'"):
        check(ACCURACY, cfg=dict(param_scheduler=[dict(type="LinearLR"), dict(type="ReduceOnPlateauLR")]))
    assert not check(ACCURACY, cfg=dict(param_scheduler=dict(type="ReduceOnPlateauLR", monitor="accuracy/top1")))


def test_the_error_says_how_to_get_results_per_class():
    hook = CheckpointHook(save_best="IoU.cat", rule="greater")
    with pytest.raises(ValueError, match="classwise=True"):
        check(dict(type="mmlisa.IoUMetric"), hooks=[hook])
    assert not check(dict(type="mmlisa.IoUMetric", classwise=True), hooks=[hook])


class Mine(type(METRICS.build(ACCURACY))):
    """A user's metric that returns more."""


class Hook(CheckpointHook):
    """A user's hook that may know more metrics."""


def test_what_is_not_known_is_not_refused():
    hooks = [CheckpointHook(save_best="mine", rule="greater"), EarlyStoppingHook(monitor="val_loss")]
    for metrics, options, name in (
        ([ACCURACY, Mine()], {}, "Mine"),
        ([Mine()], {}, "Mine"),
        ([ACCURACY], dict(loop=Validation), "Validation"),
        ([ACCURACY], dict(model=nn.Linear(1, 1)), "Linear"),  # MMEngine adds the losses that it may return
    ):
        warnings = check(*metrics, hooks=hooks, **options)
        assert [line.partition(" was not checked")[0] for line in warnings] == [
            "save_best='mine'",
            "EarlyStoppingHook.monitor='val_loss'",
        ]
        assert all(name in line for line in warnings)
    known = [
        CheckpointHook(save_best="auto"),
        CheckpointHook(save_best="accuracy/top1"),
        CheckpointHook(),
        Hook(save_best="top1"),
    ]
    assert not check(ACCURACY, hooks=known)
    assert not check(ACCURACY, hooks=hooks, loop=Tests), "no hook follows a test"


@pytest.mark.parametrize("loop", [ValLoop, Tests])
def test_top_5_of_three_classes_is_refused(loop):
    model = dict(head=dict(num_classes=3))
    with pytest.raises(ValueError, match=r"topk=\(1, 5\): the head has 3 classes; set topk=\(1,\)"):
        check(dict(ACCURACY, topk=(1, 5)), loop=loop, cfg=dict(model=model))
    check(dict(ACCURACY, topk=(1, 3)), loop=loop, cfg=dict(model=model))
    for unknown in (dict(), dict(head=None), dict(head=dict(in_channels=3))):
        check(dict(ACCURACY, topk=(1, 5)), loop=loop, cfg=dict(model=unknown))


def test_mmdets_metric_is_refused_where_it_counts_wrongly(tmp_path):
    falling = coco() | dict(categories=[dict(id=9, name="dog"), dict(id=7, name="cat")])
    options = files(tmp_path, falling, classwise=True)
    metric = dict(type="mmdet.CocoMetric", **options)
    for loop in (ValLoop, Tests):
        with pytest.raises(ValueError, match=r"classwise=True: .* permutes .*mmlisa\.CocoMetric"):
            check(metric, classes=("dog", "cat"), loop=loop)
    check(metric, classes=("cat",))  # a part of the file's that is in order
    check(dict(metric, classwise=False), classes=("dog", "cat"))
    check(dict(metric, type="mmlisa.CocoMetric"), classes=("dog", "cat"))
    (tmp_path / "a.json").write_text(json.dumps(coco() | dict(images=coco()["images"] + [dict(id=2)])))
    with pytest.raises(ValueError, match="has 1 of the 2 images"):
        check(metric)
    check(dict(metric, type="mmlisa.CocoMetric"))


def test_validation_data_without_an_object_is_refused(tmp_path):
    for dataset in (Objects([], [0]), Objects([1, 0]), [1, 2], nn.Identity()):
        check_objects(dataset)
    for dataset in (Objects([], []), Objects([1], [])):  # crowds do not count
        for library in ("mmdet", "mmlisa"):
            metric = dict(type=f"{library}.CocoMetric", **files(tmp_path))
            with pytest.raises(ValueError, match=rf"none of the {len(dataset)} images"):
                check(metric, dataset=dataset)
            check(metric, dataset=dataset, loop=Tests)


def test_names_are_compared_before_the_first_iteration(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_LIBRARIES", {"helpers"})
    monkeypatch.setitem(module._KEYS, "helpers.ToyCount", lambda metric: ["count"])
    monkeypatch.setattr(ToyRegression, "train_step", lambda *_: pytest.fail("trained"))
    with pytest.raises(ValueError, match="save_best='counts'"):
        train(runner(tmp_path, **VALIDATION, hook=dict(save_best="counts", rule="greater")))
