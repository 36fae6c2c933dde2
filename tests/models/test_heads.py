"""Distillation, whose teacher is frozen, unsaved, and its classes are learnt; MESA; the head with a hidden layer."""

import pytest
import torch

pytest.importorskip("mmpretrain")
import torch.nn.functional as F
from mmengine.registry import DefaultScope
from mmpretrain.models import ImageClassifier
from mmpretrain.structures import DataSample
from torch import nn

from mmlisa.models.heads import DistilledClassifier, MlpClsHead, SelfDistilledClassifier

NETWORK = dict(
    backbone=dict(type="mmlisa.LCNet", arch=dict(scale=0.25), out_indices=(3,)),
    neck=dict(type="GlobalAveragePooling"),
    head=dict(type="LinearClsHead", num_classes=5, in_channels=128),
)
HEAD = NETWORK["head"]


@pytest.fixture
def teacher(tmp_path) -> str:
    torch.manual_seed(1)
    with DefaultScope.overwrite_default_scope("mmpretrain"):
        torch.save(ImageClassifier(**NETWORK).state_dict(), tmp_path / "teacher.pth")
    return str(tmp_path / "teacher.pth")


def build(checkpoint: str, **options) -> DistilledClassifier:
    torch.manual_seed(0)
    teacher = dict(teacher=dict(type="ImageClassifier", **NETWORK), teacher_checkpoint=checkpoint)
    with DefaultScope.overwrite_default_scope("mmpretrain"):
        model = DistilledClassifier(**NETWORK | teacher | options)
        model.init_weights()
    return model


def test_teacher_is_read_and_not_part_of_the_model(teacher):
    model = build(teacher)
    weights = model._teacher[0].state_dict()
    assert all(torch.equal(weights[name], tensor) for name, tensor in torch.load(teacher).items())
    assert not any("teacher" in name for name in model.state_dict())
    assert not model.train()._teacher[0].training


@pytest.mark.parametrize("as_file", [False, True])
@pytest.mark.parametrize("mean", [[123.675, 116.28, 103.53], [127.5] * 3])
def test_a_teacher_sees_images_normalized_for_it(tmp_path, teacher, as_file, mean):
    ours, theirs = (dict(mean=m, std=[57.0] * 3, num_classes=5) for m in ([123.675, 116.28, 103.53], mean))
    model = dict(type="ImageClassifier", **NETWORK)
    (tmp_path / "teacher.py").write_text(f"model = {model}\ndata_preprocessor = {theirs}")
    given = str(tmp_path / "teacher.py") if as_file else model | dict(data_preprocessor=theirs)
    if mean[0] == ours["mean"][0]:
        build(teacher, teacher=given, data_preprocessor=ours)
    else:
        with pytest.raises(ValueError, match=r"teacher: .*127\.5.*123\.6.*data_preprocessor"):
            build(teacher, teacher=given, data_preprocessor=ours)


def test_a_teacher_of_timm_tells_its_normalization(teacher):
    given = dict(type="TimmClassifier", model_name="mixer_s32_224", num_classes=5)
    with pytest.raises(ValueError, match=r"teacher: .*127\.5.*None"):
        build(None, teacher=given)


@pytest.mark.parametrize("second", [None, HEAD])
def test_losses_and_scores(teacher, second):
    """The weighted sum; a second head learns from the teacher, and a test has half of each."""
    model = build(teacher, weight=0.3, distill_head=second).eval()
    parts = (model.head, model.distill_head if second else model.head)
    for part in parts:  # which start at next to nothing
        nn.init.normal_(part.fc.bias)
    images, samples = torch.randn(4, 3, 64, 64), [DataSample().set_gt_label(i) for i in range(4)]
    first, distilled = (part(model.extract_feat(images)) for part in parts)
    target = model._teacher[0](images, mode="tensor").argmax(1)
    losses = model.loss(images, samples)
    torch.testing.assert_close(losses["loss"], 0.7 * F.cross_entropy(first, torch.arange(4)))
    torch.testing.assert_close(losses["loss_distill"], 0.3 * F.cross_entropy(distilled, target))
    torch.testing.assert_close(model(images, mode="tensor"), (first + distilled) / 2)
    scores = torch.stack([sample.pred_score for sample in model(images, mode="predict")])
    torch.testing.assert_close(scores, ((first + distilled) / 2).softmax(1))
    sum(losses.values()).backward()
    assert all(p.grad is None for p in model._teacher[0].parameters())


def test_accuracies_are_not_weighed(teacher):
    model = build(teacher, weight=0.3, head=dict(HEAD, cal_acc=True))
    losses = model.loss(torch.randn(4, 3, 64, 64), [DataSample().set_gt_label(i) for i in range(4)])
    assert 0 <= float(losses["accuracy_top-1"][0]) <= 100
    torch.testing.assert_close(model.parse_losses(losses)[0], losses["loss"] + losses["loss_distill"])


def test_mesa_is_the_sum_of_both():
    """From an epoch on, the averaged network teaches the network that it is the average of."""
    torch.manual_seed(0)
    with DefaultScope.overwrite_default_scope("mmpretrain"):
        model, teacher = SelfDistilledClassifier(**NETWORK, weight=1.5).eval(), SelfDistilledClassifier(**NETWORK)
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
    assert len(model.state_dict()) == len(teacher.state_dict())


ACTIVATIONS = {"GELU": F.gelu, "ReLU": F.relu, "SquaredReLU": lambda x: F.relu(x) ** 2}


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("pre_norm", [False, True])
def test_a_hidden_layer(activation, pre_norm):
    """MetaFormer's order: the hidden layer, its activation, a norm, the dropout, the classes; of the last map alone."""
    torch.manual_seed(0)
    head = MlpClsHead(5, 12, activation=activation, pre_norm=pre_norm, dropout=0.4).double().eval()
    for parameter in head.parameters():
        nn.init.normal_(parameter)
    first, last = (torch.randn(4, 12, dtype=torch.float64) for _ in range(2))
    x = F.layer_norm(last, (12,), head.pre_norm.weight, head.pre_norm.bias, 1e-6) if pre_norm else last
    x = ACTIVATIONS[activation](F.linear(x, head.fc1.weight, head.fc1.bias))
    x = F.layer_norm(x, (48,), head.norm.weight, head.norm.bias, 1e-6)
    expected = F.linear(x, head.fc2.weight, head.fc2.bias)
    torch.testing.assert_close(head((first, last)), expected, rtol=1e-9, atol=1e-9)
    assert not torch.allclose(head.train()((first, last)), expected)


def test_layers_of_the_head_start_small():
    """Linear layers at 0.02; a last one that is to start smaller at that share of it."""
    torch.manual_seed(0)
    head = MlpClsHead(50, 40, init_scale=0.001)
    head.init_weights()
    assert head.fc1.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert head.fc2.weight.std().item() == pytest.approx(0.02 * 0.001, rel=0.05)
