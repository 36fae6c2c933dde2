"""Hard distillation: the teacher is frozen, unsaved, and its classes are learnt."""

import pytest
import torch

pytest.importorskip("mmpretrain")
import torch.nn.functional as F
from mmengine.registry import DefaultScope
from mmpretrain.models import ImageClassifier
from mmpretrain.structures import DataSample
from torch import nn

from mmlisa.models.heads import DistilledClassifier

NETWORK = dict(
    backbone=dict(type="mmlisa.LCNet", arch=dict(scale=0.25), out_indices=(3,)),
    neck=dict(type="GlobalAveragePooling"),
    head=dict(type="LinearClsHead", num_classes=5, in_channels=128),
)


@pytest.fixture
def teacher(tmp_path) -> str:
    torch.manual_seed(1)
    with DefaultScope.overwrite_default_scope("mmpretrain"):
        torch.save(ImageClassifier(**NETWORK).state_dict(), tmp_path / "teacher.pth")
    return str(tmp_path / "teacher.pth")


def build(checkpoint: str, **options) -> DistilledClassifier:
    torch.manual_seed(0)
    with DefaultScope.overwrite_default_scope("mmpretrain"):
        cfg = dict(type="ImageClassifier", **NETWORK)
        model = DistilledClassifier(teacher=cfg, teacher_checkpoint=checkpoint, **NETWORK, **options)
        model.init_weights()
    return model


def test_loss_is_the_weighted_sum(teacher):
    model = build(teacher, weight=0.3).eval()
    images, samples = torch.randn(4, 3, 64, 64), [DataSample().set_gt_label(i) for i in range(4)]
    losses = model.loss(images, samples)
    logits, target = model(images, mode="tensor"), model._teacher[0](images, mode="tensor").argmax(1)
    torch.testing.assert_close(losses["loss"], 0.7 * F.cross_entropy(logits, torch.arange(4)))
    torch.testing.assert_close(losses["loss_distill"], 0.3 * F.cross_entropy(logits, target))
    sum(losses.values()).backward()
    assert all(p.grad is None for p in model._teacher[0].parameters())


def test_teacher_is_read_and_not_part_of_the_model(teacher):
    model = build(teacher)
    weights = model._teacher[0].state_dict()
    assert all(torch.equal(weights[name], tensor) for name, tensor in torch.load(teacher).items())
    assert not any("teacher" in name for name in model.state_dict())
    assert not model.train()._teacher[0].training


def test_second_head_learns_from_the_teacher_and_halves_the_test(teacher):
    head = dict(type="LinearClsHead", num_classes=5, in_channels=128)
    model = build(teacher, weight=0.3, distill_head=head).eval()
    for part in (model.head, model.distill_head):  # which start at next to nothing
        nn.init.normal_(part.fc.bias)
    images, samples = torch.randn(4, 3, 64, 64), [DataSample().set_gt_label(i) for i in range(4)]
    features = model.extract_feat(images)
    first, second = model.head(features), model.distill_head(features)
    target = model._teacher[0](images, mode="tensor").argmax(1)
    losses = model.loss(images, samples)
    torch.testing.assert_close(losses["loss"], 0.7 * F.cross_entropy(first, torch.arange(4)))
    torch.testing.assert_close(losses["loss_distill"], 0.3 * F.cross_entropy(second, target))
    torch.testing.assert_close(model(images, mode="tensor"), (first + second) / 2)
    scores = torch.stack([sample.pred_score for sample in model(images, mode="predict")])
    torch.testing.assert_close(scores, ((first + second) / 2).softmax(1))


def test_accuracies_are_not_weighed(teacher):
    head = dict(NETWORK["head"], cal_acc=True)
    samples = [DataSample().set_gt_label(i) for i in range(4)]
    with DefaultScope.overwrite_default_scope("mmpretrain"):
        model = DistilledClassifier(
            teacher=dict(type="ImageClassifier", **NETWORK),
            teacher_checkpoint=teacher,
            weight=0.3,
            **{**NETWORK, "head": head},
        )
        model.init_weights()
    losses = model.loss(torch.randn(4, 3, 64, 64), samples)
    assert 0 <= float(losses["accuracy_top-1"][0]) <= 100
    total, _ = model.parse_losses(losses)
    torch.testing.assert_close(total, losses["loss"] + losses["loss_distill"])
