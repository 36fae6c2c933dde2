"""MESA: from an epoch on, the averaged network teaches the network that it is the average of."""

import pytest
import torch

pytest.importorskip("mmpretrain")
import torch.nn.functional as F
from mmengine.registry import DefaultScope
from mmengine.runner import Runner
from mmpretrain.structures import DataSample
from torch.utils.data import Dataset

from mmlisa.models.heads import SelfDistilledClassifier
from mmlisa.training.ema import SelfDistillationHook

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


class Images(Dataset):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> dict:
        image = torch.randn(3, 64, 64, generator=torch.Generator().manual_seed(i))
        return dict(inputs=image, data_samples=DataSample().set_gt_label(i))


def test_the_hook_sets_the_average_from_its_epoch_on(tmp_path):
    torch.manual_seed(0)
    model, seen = build(weight=1.0), []
    loss = SelfDistilledClassifier.loss

    class Watched(SelfDistilledClassifier):
        def loss(self, inputs, data_samples):
            losses = loss(self, inputs, data_samples)
            seen.append(set(losses))
            return losses

    with DefaultScope.overwrite_default_scope("mmpretrain"):
        model = Watched(**NETWORK, data_preprocessor=dict(type="ClsDataPreprocessor", num_classes=5))
    hook = SelfDistillationHook(distill_from=1, momentum=0.5, update_buffers=True)
    runner = Runner(
        model=model,
        work_dir=str(tmp_path),
        train_dataloader=dict(
            batch_size=2, dataset=Images(), sampler=dict(type="DefaultSampler"), collate_fn=dict(type="default_collate")
        ),
        train_cfg=dict(by_epoch=True, max_epochs=2),
        optim_wrapper=dict(type="OptimWrapper", optimizer=dict(type="SGD", lr=0.1)),
        custom_hooks=[hook],
        default_scope="mmpretrain",
        default_hooks=dict(checkpoint=None, logger=None),
    )
    runner.train()
    assert seen == [{"loss"}] * 2 + [{"loss", "loss_mesa"}] * 2
    assert model._teacher[0] is hook.ema_model.module
    weight, average = (m.head.fc.weight for m in (model, hook.ema_model.module))
    assert not torch.equal(weight, average)
    assert not hook.ema_model.module.training
