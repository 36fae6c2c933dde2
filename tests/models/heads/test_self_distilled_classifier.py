"""MESA: from an epoch on, the averaged network teaches the network that it is the average of."""

import pytest
import torch

pytest.importorskip("mmpretrain")
import torch.nn.functional as F
from mmengine.registry import DefaultScope
from mmpretrain.structures import DataSample

from mmlisa.models.heads import SelfDistilledClassifier

NETWORK = dict(
    backbone=dict(type="mmlisa.LCNet", arch=dict(scale=0.25), out_indices=(3,)),
    neck=dict(type="GlobalAveragePooling"),
    head=dict(type="LinearClsHead", num_classes=5, in_channels=128),
)


def build(**options) -> SelfDistilledClassifier:
    with DefaultScope.overwrite_default_scope("mmpretrain"):
        return SelfDistilledClassifier(**NETWORK, **options)


def test_loss_is_the_sum_of_both():
    torch.manual_seed(0)
    model, teacher = build(weight=1.5).eval(), build()
    images = torch.randn(4, 3, 64, 64)
    # As Mixup leaves them: scores instead of labels.
    mixed = torch.tensor([[0.7, 0.3, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 0.5, 0.5, 0], [0, 0, 0, 0.1, 0.9]])
    samples = [DataSample().set_gt_score(score) for score in mixed]
    alone = model.loss(images, samples)
    assert set(alone) == {"loss"}
    model.set_teacher(teacher.train())
    losses = model.loss(images, samples)
    assert not teacher.training
    logits, target = model(images, mode="tensor"), teacher(images, mode="tensor").softmax(1)
    expected = -1.5 * (target * logits.log_softmax(1)).sum(1).mean()
    torch.testing.assert_close(losses["loss_mesa"], expected)
    torch.testing.assert_close(losses["loss"], -(mixed * logits.log_softmax(1)).sum(1).mean())
    assert (expected / 1.5 - F.cross_entropy(logits, logits.softmax(1))).abs() > 1e-4  # the teacher is another network
    sum(losses.values()).backward()
    assert all(p.grad is None for p in teacher.parameters())
    assert len(model.state_dict()) == len(build().state_dict())
