"""PicoDet's head: its assignment, its losses with and without boxes, and its boxes."""

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("mmdet")
from mmengine.config import ConfigDict
from mmengine.structures import InstanceData
from torchvision.ops import box_iou, generalized_box_iou

from mmlisa.models.dense_heads import PicoHead, VarifocalSimOTAAssigner

CLASSES = 3


@pytest.fixture
def head() -> PicoHead:
    torch.manual_seed(0)
    head = PicoHead(
        CLASSES,
        16,
        stacked_convs=1,
        train_cfg=dict(assigner=dict(type="mmlisa.VarifocalSimOTAAssigner")),
        test_cfg=None,
    )
    head.init_weights()
    return head


def features(batch: int = 2) -> list[torch.Tensor]:
    return [torch.randn(batch, 16, n, n + 1) for n in (8, 4, 2, 1)]


@pytest.mark.parametrize("boxes", [0, 3])
def test_losses_without_boxes_have_gradients(head, boxes):
    """In one of two images, and in both."""
    gts = [InstanceData(bboxes=5.0 + 40 * torch.rand(n, 4).cumsum(1), labels=torch.arange(n)) for n in (0, boxes)]
    losses = head.loss_by_feat(*head(features()), gts, [{}, {}])
    sum(losses.values()).backward()
    assert all(loss.isfinite() for loss in losses.values())
    assert (losses["loss_bbox"] > 0) == (boxes > 0)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in head.parameters())


def test_predicted_boxes_are_distances_in_strides(head):
    scores, distributions = head(features(1))
    # All mass on 2 strides, for every side of every prior; only one prior has a score.
    for score, distribution in zip(scores, distributions, strict=True):
        score.data.fill_(-10)
        distribution.data.view(1, 4, 8, *distribution.shape[2:]).fill_(-50)[:, :, 2] = 50
    scores[1].data[0, 1, 2, 1] = 10
    cfg = dict(nms_pre=10, min_bbox_size=0, score_thr=0.1, nms=dict(type="nms", iou_threshold=0.6), max_per_img=5)
    meta = dict(img_shape=(64, 72), pad_shape=(96, 96), scale_factor=(1, 1))
    (result,) = head.predict_by_feat(scores, distributions, batch_img_metas=[meta], cfg=ConfigDict(cfg), rescale=False)
    assert result.labels.tolist() == [1]
    # Centre (1.5, 2.5) * 16 = (24, 40), 32 pixels each way, clipped to the image.
    torch.testing.assert_close(result.bboxes, torch.tensor([[0.0, 8, 56, 64]]))


def test_every_class_starts_at_one_percent(head):
    scores, _ = head(features(8))
    mean = torch.cat([s.detach().sigmoid().flatten() for s in scores]).mean()
    assert mean == pytest.approx(0.01, rel=0.1)


def test_the_best_priors_of_a_level_keep_all_of_their_classes(head):
    """PaddleDetection keeps priors with all of their classes, not pairs of a prior and a class."""
    scores, distributions = ([torch.full((1, c, n, n), -9.0) for n in (4, 2, 1, 1)] for c in (CLASSES, 32))
    scores[0][0, :, 1, 1] = torch.tensor([2.0, 1.0, -1.0])
    scores[0][0, :, 3, 3] = torch.tensor([-9.0, 1.5, -9.0])
    cfg = dict(nms_pre=1, min_bbox_size=0, score_thr=0.025, nms=dict(type="nms", iou_threshold=0.6), max_per_img=9)
    meta = dict(img_shape=(32, 32), scale_factor=(1, 1))
    (result,) = head.predict_by_feat(scores, distributions, batch_img_metas=[meta], cfg=ConfigDict(cfg), rescale=False)
    assert result.labels.tolist() == [0, 1, 2]
    torch.testing.assert_close(result.scores, torch.tensor([2.0, 1.0, -1.0]).sigmoid())


def priors_of(sizes: list[tuple[int, int]]) -> torch.Tensor:
    """``[N, 4]``: the centre of each cell of the maps, and twice its level's stride."""
    priors = []
    for (height, width), stride in zip(sizes, (8.0, 16.0, 32.0, 64.0), strict=False):
        cells = torch.cartesian_prod(torch.arange(height), torch.arange(width)).flip(1) + 0.5
        priors.append(torch.cat([cells * stride, torch.full((len(cells), 2), stride)], dim=1))
    return torch.cat(priors)


def assigned(priors, predicted, scores, boxes, labels) -> list[int]:
    """SimOTA with PicoDet's cost (PP-PicoDet, Eq. 2), prior by prior: the number of its box, from 1, or 0."""
    inside = ((priors[:, None, :2] > boxes[:, :2]) & (priors[:, None, :2] < boxes[:, 2:])).all(-1)
    offset = priors[:, None, :2] - (boxes[:, :2] + boxes[:, 2:]) / 2
    central = (offset.abs() < 2.5 * priors[:, None, 2:]).all(-1)
    candidates = (inside.any(1) | central.any(1)).nonzero()[:, 0].tolist()
    general, iou = generalized_box_iou(predicted, boxes), box_iou(predicted, boxes)
    cost = torch.full((len(priors), len(boxes)), torch.inf)
    for i in candidates:
        for j, label in enumerate(labels):
            target = F.one_hot(label, CLASSES) * iou[i, j]
            focal = torch.where(target > 0, target, 0.75 * scores[i] ** 2)
            varifocal = (focal * F.binary_cross_entropy(scores[i], target, reduction="none")).sum()
            far = 0 if inside[i, j] and central[i, j] else 1e5
            cost[i, j] = varifocal + 6 * (1 - general[i, j]) + far
    chosen = torch.zeros_like(cost, dtype=torch.bool)
    for j in range(len(boxes)):
        count = max(int(iou[candidates, j].sort(descending=True).values[:10].sum()), 1)
        chosen[cost[:, j].argsort()[:count], j] = True
    return [
        int(cost[i].masked_fill(~chosen[i] & (chosen[i].sum() == 1), torch.inf).argmin()) + 1 if chosen[i].any() else 0
        for i in range(len(priors))
    ]


@pytest.mark.parametrize("seed", range(6))
def test_assignment_is_simotas(seed):
    """Boxes of all sizes, many over each other, predictions near them and anywhere."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.rand(*shape, generator=generator)

    priors = priors_of([(8, 8), (4, 4), (2, 2)])
    centers, sizes = 8 + 48 * draw(5, 2), 6 + 40 * draw(5, 2)
    boxes = torch.cat([centers - sizes / 2, centers + sizes / 2], dim=1)
    labels = (CLASSES * draw(5)).long()
    predicted = boxes[(5 * draw(len(priors))).long()] + 6 * draw(len(priors), 4) - 3
    predicted[:, 2:] = torch.maximum(predicted[:, 2:], predicted[:, :2] + 1)
    scores = 0.02 + 0.9 * draw(len(priors), CLASSES)
    result = VarifocalSimOTAAssigner().assign(
        InstanceData(priors=priors, bboxes=predicted, scores=scores), InstanceData(bboxes=boxes, labels=labels)
    )
    expected = assigned(priors, predicted, scores, boxes, labels)
    assert result.gt_inds.tolist() == expected
    assert result.labels.tolist() == [int(labels[i - 1]) if i else -1 for i in expected]
    assert sum(i > 0 for i in expected) > 5


def test_losses_by_their_formulas(head):
    """Varifocal over all priors, GIoU and distribution focal over the positives, weighted by their best class score.

    The IoU in the varifocal loss is a target, and the score of the other two a weight: neither has a gradient.
    """
    torch.manual_seed(1)
    sizes = [(8, 9), (4, 5), (2, 3), (1, 2)]
    scores = [(2 * torch.randn(2, CLASSES, *size)).requires_grad_() for size in sizes]
    sides = [(2 * torch.randn(2, 32, *size)).requires_grad_() for size in sizes]
    gts = [
        InstanceData(bboxes=torch.tensor([[4.0, 6, 30, 40], [20, 10, 66, 60]]), labels=torch.tensor([2, 0])),
        InstanceData(bboxes=torch.tensor([[30.0, 2, 50, 30]]), labels=torch.tensor([1])),
    ]
    losses = head.loss_by_feat(scores, sides, gts, [{}, {}])
    priors = priors_of(sizes)
    varifocal, boxes_loss, distribution, weights, count = 0, 0, 0, 0, 0
    for image, gt in enumerate(gts):
        logits = torch.cat([s[image].flatten(1).T for s in scores])
        corners = torch.cat([s[image].flatten(1).T for s in sides]).view(-1, 4, 8)
        distance = corners.softmax(-1) @ torch.arange(8.0) * priors[:, 2:3]
        predicted = torch.cat([priors[:, :2] - distance[:, :2], priors[:, :2] + distance[:, 2:]], dim=1)
        probability, target = logits.sigmoid(), torch.zeros_like(logits)
        numbers = assigned(priors, predicted.detach(), probability.detach(), gt.bboxes, gt.labels)
        for i, number in enumerate(numbers):
            if not number:
                continue
            box, label = gt.bboxes[number - 1], gt.labels[number - 1]
            pair, weight = (predicted[i : i + 1], box[None]), probability[i].max().detach()
            target[i, label] = box_iou(*pair).detach()
            boxes_loss += weight * (1 - generalized_box_iou(*pair).squeeze())
            wanted = torch.cat([priors[i, :2] - box[:2], box[2:] - priors[i, :2]]) / priors[i, 2]
            wanted = wanted.clamp(0, 7 - 0.1)  # mmdet's coder
            low = wanted.long()
            logs = corners[i].log_softmax(-1)
            near, far = logs.gather(1, low[:, None])[:, 0], logs.gather(1, low[:, None] + 1)[:, 0]
            distribution += weight * -((low + 1 - wanted) * near + (wanted - low) * far).mean()
            weights, count = weights + weight, count + 1
        focal = torch.where(target > 0, target, 0.75 * probability**2)
        varifocal += (focal * F.binary_cross_entropy_with_logits(logits, target, reduction="none")).sum()
    assert count > 5
    expected = dict(
        loss_cls=varifocal / count, loss_bbox=2 * boxes_loss / weights, loss_dfl=0.25 * distribution / weights
    )
    torch.testing.assert_close(losses, expected, rtol=1e-4, atol=1e-5)
    for name, loss in losses.items():
        found, own = (torch.autograd.grad(x, scores + sides, materialize_grads=True) for x in (loss, expected[name]))
        assert any(g.abs().max() > 1e-3 for g in own)
        torch.testing.assert_close(found, own, rtol=1e-3, atol=1e-6, msg=name)
