"""PicoDet's head: its assignment's cost, its losses with and without boxes, and its boxes."""

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("mmdet")
from mmdet.models.losses.varifocal_loss import varifocal_loss
from mmengine.structures import InstanceData

from mmlisa.models.dense_heads import PicoHead, VarifocalSimOTAAssigner
from mmlisa.models.necks import CSPPAN, LCPAN

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


def test_cost_is_the_varifocal_loss_of_every_pair():
    torch.manual_seed(0)
    logits, labels, ious = torch.randn(7, CLASSES), torch.tensor([2, 0]), torch.rand(7, 2)
    ious[3, 0] = 0
    target = F.one_hot(labels, CLASSES)[None] * ious[..., None]
    pairs = logits[:, None].expand(-1, 2, -1)
    expected = varifocal_loss(pairs, target, reduction="none").sum(-1)
    cost = VarifocalSimOTAAssigner().varifocal_cost(logits.sigmoid(), labels, ious)
    torch.testing.assert_close(cost, expected)


def test_assigner_finds_the_priors_that_fit():
    priors = torch.tensor([[4.0, 4, 8, 8], [12, 4, 8, 8], [60, 60, 8, 8]])
    boxes = torch.tensor([[0.0, 0, 10, 10]])
    predicted = InstanceData(
        priors=priors,
        bboxes=torch.tensor([[0.0, 0, 10, 10], [40, 40, 50, 50], [55, 55, 65, 65]]),
        scores=torch.full((3, 3), 0.5),
    )
    result = VarifocalSimOTAAssigner().assign(predicted, InstanceData(bboxes=boxes, labels=torch.tensor([1])))
    assert result.gt_inds.tolist() == [1, 0, 0]
    assert result.labels.tolist() == [1, -1, -1]
    empty = InstanceData(bboxes=boxes[:0], labels=torch.zeros(0, dtype=torch.long))
    assert VarifocalSimOTAAssigner().assign(predicted, empty).gt_inds.tolist() == [0, 0, 0]


@pytest.mark.parametrize("counts", [(2, 1), (0, 3), (0, 0)])
def test_losses(head, counts):
    gts = [
        InstanceData(
            bboxes=torch.tensor([[5.0, 6, 40, 50]]).repeat(n, 1) + torch.arange(n)[:, None],
            labels=torch.arange(n) % CLASSES,
        )
        for n in counts
    ]
    losses = head.loss_by_feat(*head(features()), gts, [{}, {}])
    assert set(losses) == {"loss_cls", "loss_bbox", "loss_dfl"}
    sum(losses.values()).backward()
    assert all(loss.isfinite() for loss in losses.values())
    assert (losses["loss_bbox"] > 0) == (sum(counts) > 0)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in head.parameters())


def test_predicted_boxes_are_distances_in_strides(head):
    scores, distributions = head(features(1))
    # All mass on 2 strides, for every side of every prior; only one prior has a score.
    for score, distribution in zip(scores, distributions, strict=True):
        score.data.fill_(-10)
        distribution.data.view(1, 4, 8, *distribution.shape[2:]).fill_(-50)[:, :, 2] = 50
    scores[1].data[0, 1, 2, 1] = 10
    cfg = dict(nms_pre=10, min_bbox_size=0, score_thr=0.1, nms=dict(type="nms", iou_threshold=0.6), max_per_img=5)
    from mmengine.config import ConfigDict

    meta = dict(img_shape=(64, 72), scale_factor=(1, 1))
    (result,) = head.predict_by_feat(scores, distributions, batch_img_metas=[meta], cfg=ConfigDict(cfg), rescale=False)
    assert result.labels.tolist() == [1]
    # Centre (1.5, 2.5) * 16 = (24, 40), 32 pixels each way, clipped to the image.
    torch.testing.assert_close(result.bboxes, torch.tensor([[0.0, 8, 56, 64]]))


@pytest.mark.parametrize("neck", [CSPPAN, LCPAN])
def test_necks_take_any_size_and_add_a_level(neck):
    maps = [torch.randn(2, c, h, w) for c, h, w in ((8, 13, 15), (16, 7, 8), (24, 4, 4))]
    module = neck([8, 16, 24], 12)
    outs = module(maps)
    assert [tuple(o.shape[1:]) for o in outs] == [(12, 13, 15), (12, 7, 8), (12, 4, 4), (12, 2, 2)]
    sum(o.sum() for o in outs).backward()
    assert all(p.grad is not None for p in module.parameters())
    assert len(neck([8, 16, 24], 12, num_outs=3)(maps)) == 3
    with pytest.raises(ValueError, match="num_outs=6"):
        neck([8, 16, 24], 12, num_outs=6)
