"""Dense heads that no OpenMMLab package has: PicoDet's, and its label assignment (Yu et al., "PP-PicoDet", Sec. 3.2-3.3)."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from mmcv.cnn import DepthwiseSeparableConvModule
from mmdet.models.dense_heads.base_dense_head import BaseDenseHead
from mmdet.models.dense_heads.gfl_head import Integral
from mmdet.models.task_modules.assigners import AssignResult, SimOTAAssigner
from mmdet.structures.bbox import bbox_overlaps
from mmdet.utils import reduce_mean
from mmengine.config import ConfigDict
from mmengine.model import bias_init_with_prob, normal_init
from mmengine.structures import InstanceData
from torch import Tensor, nn

from mmlisa.models.init_cfg import SafeInit
from mmlisa.ops import no_autocast
from mmlisa.registry import MODELS, TASK_UTILS

ALPHA, GAMMA = 0.75, 2.0  # settings of the varifocal loss


@TASK_UTILS.register_module()
class VarifocalSimOTAAssigner(SimOTAAssigner):
    """SimOTA whose cost is the varifocal loss plus ``iou_weight * (1 - GIoU)``; the options are mmdet's."""

    def __init__(self, iou_weight: float = 6.0, **options: Any) -> None:
        super().__init__(iou_weight=iou_weight, iou_calculator=dict(type="mmdet.BboxOverlaps2D"), **options)

    def assign(self, pred_instances: InstanceData, gt_instances: InstanceData, **kwargs) -> AssignResult:
        """Assign each prior ``[n, 4]`` (x, y, stride, stride) of ``pred_instances`` a box, or none; the scores lie in [0, 1]."""
        boxes, labels = gt_instances.bboxes, gt_instances.labels
        n, k = len(pred_instances.bboxes), len(boxes)
        assigned, overlaps = boxes.new_zeros(n, dtype=torch.long), boxes.new_zeros(n)
        assigned_labels = boxes.new_full((n,), -1, dtype=torch.long)
        result = AssignResult(k, assigned, overlaps, labels=assigned_labels)
        if k == 0:
            return result
        candidate, central = self.get_in_gt_and_in_center_info(pred_instances.priors, boxes)
        if not candidate.any():
            return result
        predicted = pred_instances.bboxes[candidate]
        ious = self.iou_calculator(predicted, boxes)
        cost = self.varifocal_cost(pred_instances.scores[candidate], labels, ious)
        cost += self.iou_weight * (1 - bbox_overlaps(predicted, boxes, mode="giou"))
        cost += 1e5 * ~central
        # From here on `candidate` holds the positives: mmdet's matching changes it in place.
        matched_ious, matched = self.dynamic_k_matching(cost, ious, k, candidate)
        assigned[candidate] = matched + 1
        overlaps[candidate] = matched_ious
        assigned_labels[candidate] = labels[matched]
        return result

    def varifocal_cost(self, scores: Tensor, labels: Tensor, ious: Tensor) -> Tensor:
        """Return the varifocal loss ``[n, k]`` of each prediction ``[n, classes]`` as if each of the k boxes were its target.

        A box changes the target of its own class only, so that all other classes are summed once.
        """
        with no_autocast(scores.device):
            scores = scores.float()
            entropy = F.binary_cross_entropy(scores, torch.zeros_like(scores), reduction="none")
            as_negative = ALPHA * scores**GAMMA * entropy
            box_scores = scores[:, labels]  # the score for the class of each box
            box_as_negative = as_negative[:, labels]
            box_as_positive = ious * F.binary_cross_entropy(box_scores, ious.clamp(0, 1), reduction="none")
            box_cost = torch.where(ious > 0, box_as_positive, box_as_negative)
            return as_negative.sum(dim=1, keepdim=True) - box_as_negative + box_cost


@MODELS.register_module()
class PicoHead(SafeInit, BaseDenseHead):
    """PicoDet's head: depthwise separable towers per level, classes and box distributions from one 1x1 convolution.

    Args:
        stacked_convs: depthwise separable convolutions of a tower.
        reg_max: a box side is a distribution over 0 to ``reg_max`` strides.
        norm_cfg: normalization in the towers.
        train_cfg: ``assigner``.
    """

    def __init__(
        self,
        num_classes: int,
        in_channels: int,
        stacked_convs: int = 2,
        strides: Sequence[int] = (8, 16, 32, 64),
        reg_max: int = 7,
        norm_cfg: dict[str, Any] | None = None,
        train_cfg: dict | None = None,
        test_cfg: dict | None = None,
        init_cfg: dict[str, Any] | list[dict[str, Any]] | None = None,
    ) -> None:
        super().__init__(init_cfg=init_cfg)
        self.num_classes = self.cls_out_channels = num_classes
        self.use_sigmoid_cls = True
        self.strides, self.reg_max = tuple(strides), reg_max
        self.train_cfg, self.test_cfg = train_cfg, test_cfg
        points = dict(type="mmdet.MlvlPointGenerator", strides=list(strides), offset=0.5)
        self.prior_generator = TASK_UTILS.build(points)
        self.bbox_coder = TASK_UTILS.build(dict(type="mmdet.DistancePointBBoxCoder"))
        self.assigner = TASK_UTILS.build(train_cfg["assigner"]) if train_cfg else None
        self.integral = Integral(reg_max)
        self.loss_cls = MODELS.build(dict(type="mmdet.VarifocalLoss", alpha=ALPHA, gamma=GAMMA))
        self.loss_dfl = MODELS.build(dict(type="mmdet.DistributionFocalLoss", loss_weight=0.25))
        self.loss_bbox = MODELS.build(dict(type="mmdet.GIoULoss", loss_weight=2.0))

        cfg = dict(kernel_size=5, padding=2, norm_cfg=norm_cfg or dict(type="BN"), act_cfg=dict(type="HSwish"))
        layer = partial(DepthwiseSeparableConvModule, in_channels, in_channels, **cfg)
        self.towers = nn.ModuleList(nn.Sequential(*(layer() for _ in range(stacked_convs))) for _ in strides)
        self.predictors = nn.ModuleList(nn.Conv2d(in_channels, num_classes + 4 * (reg_max + 1), 1) for _ in strides)

    def init_more(self) -> None:
        for predictor in self.predictors:
            normal_init(predictor, std=0.01)
            # At the start every class of every prior has the score 0.01.
            nn.init.constant_(predictor.bias[: self.num_classes], bias_init_with_prob(0.01))

    def forward(self, feats: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Return class logits ``[B, classes, H_l, W_l]`` and distribution logits ``[B, 4 (reg_max + 1), H_l, W_l]`` per level."""
        sizes = [self.num_classes, 4 * (self.reg_max + 1)]
        levels = zip(feats, self.towers, self.predictors, strict=True)
        outs = [predictor(tower(x)).split(sizes, dim=1) for x, tower, predictor in levels]
        return [scores for scores, _ in outs], [sides for _, sides in outs]

    def to_distances(self, bbox_preds: Sequence[Tensor]) -> list[Tensor]:
        """Return expected distances in pixels ``[B, 4, H_l, W_l]`` of logits ``[B, 4 (reg_max + 1), H_l, W_l]``, per level."""
        # Not MMDetection's `Integral`, whose buffer PyTorch's exporter to ONNX loses.
        steps = torch.arange(self.reg_max + 1, dtype=bbox_preds[0].dtype, device=bbox_preds[0].device)[:, None, None]
        return [
            (pred.unflatten(1, (4, -1)).softmax(dim=2) * steps).sum(dim=2) * stride
            for pred, stride in zip(bbox_preds, self.strides, strict=True)
        ]

    def predict_by_feat(self, cls_scores: list[Tensor], bbox_preds: list[Tensor], *args, **kwargs):
        """Return MMDetection's predictions, with the distributions turned into distances in pixels."""
        return super().predict_by_feat(cls_scores, self.to_distances(bbox_preds), *args, **kwargs)

    def _predict_by_feat_single(
        self,
        cls_score_list: list[Tensor],
        bbox_pred_list: list[Tensor],
        score_factor_list: list[None],
        mlvl_priors: list[Tensor],
        img_meta: dict,
        cfg: ConfigDict,
        rescale: bool = False,
        with_nms: bool = True,
    ) -> InstanceData:
        """Return the detections of one image from the ``nms_pre`` best priors of each level with all of their classes.

        PaddleDetection selects priors; MMDetection selects pairs of a prior and a class.
        """
        cfg = self.test_cfg if cfg is None else cfg
        nms_pre = cfg.get("nms_pre", -1)  # -1: all, as in MMDetection
        boxes, scores = [], []
        for logits, distances, priors in zip(cls_score_list, bbox_pred_list, mlvl_priors, strict=True):
            score = logits.permute(1, 2, 0).reshape(-1, self.num_classes).sigmoid()
            best = score.amax(dim=1)
            top = best.topk(len(best) if nms_pre < 0 else min(nms_pre, len(best))).indices
            distance = distances.permute(1, 2, 0).reshape(-1, 4)[top]
            boxes.append(self.bbox_coder.decode(priors[top], distance, max_shape=img_meta["img_shape"]))
            scores.append(score[top])
        boxes, scores = torch.cat(boxes), torch.cat(scores)
        prior, label = (scores > cfg.score_thr).nonzero(as_tuple=True)
        results = InstanceData(bboxes=boxes[prior], scores=scores[prior, label], labels=label)
        return self._bbox_post_process(results, cfg, rescale=rescale, with_nms=with_nms, img_meta=img_meta)

    def loss_by_feat(
        self,
        cls_scores: list[Tensor],
        bbox_preds: list[Tensor],
        batch_gt_instances: list[InstanceData],
        batch_img_metas: list[dict],
        batch_gt_instances_ignore: list[InstanceData] | None = None,
    ) -> dict[str, Tensor]:
        """Return the three losses over all levels; regression is weighted by the best class score of a positive, detached."""
        sizes, device = [score.shape[2:] for score in cls_scores], cls_scores[0].device
        priors = torch.cat(self.prior_generator.grid_priors(sizes, device=device, with_stride=True))
        logits, corners = _flatten(cls_scores).float(), _flatten(bbox_preds).float()
        strides = priors[:, 2:3]
        # Boxes are measured in strides, like the distributions.
        centers = (priors[:, :2] / strides).expand(len(logits), -1, -1)
        boxes = self.bbox_coder.decode(centers, self.integral(corners).reshape(*centers.shape[:2], 4))
        scores = logits.detach().sigmoid()

        labels, targets = [], []
        for i, gt in enumerate(batch_gt_instances):
            predicted = InstanceData(priors=priors, bboxes=boxes[i].detach() * strides, scores=scores[i])
            assigned = self.assigner.assign(predicted, gt)
            labels.append(assigned.labels)
            targets.append(gt.bboxes[(assigned.gt_inds - 1).clamp(min=0)] if len(gt) else torch.zeros_like(boxes[i]))
        labels, targets = torch.stack(labels), torch.stack(targets) / strides

        image, prior = positive = (labels >= 0).nonzero(as_tuple=True)
        quality = torch.zeros_like(logits)
        ious = bbox_overlaps(boxes[positive].detach(), targets[positive], is_aligned=True)
        quality[image, prior, labels[positive]] = ious
        weight = scores[positive].max(dim=1).values
        num_positive = reduce_mean(logits.new_tensor(len(image), dtype=torch.float)).clamp(min=1).item()
        total_weight = reduce_mean(weight.sum()).clamp(min=1).item()

        distances = self.bbox_coder.encode(centers[positive], targets[positive], self.reg_max)
        return dict(
            loss_cls=self.loss_cls(logits.flatten(0, 1), quality.flatten(0, 1), avg_factor=num_positive),
            loss_bbox=self.loss_bbox(boxes[positive], targets[positive], weight=weight, avg_factor=total_weight),
            loss_dfl=self.loss_dfl(
                corners[positive].reshape(-1, self.reg_max + 1),
                distances.reshape(-1),
                weight=weight.repeat_interleave(4),
                avg_factor=4 * total_weight,
            ),
        )


def _flatten(maps: list[Tensor]) -> Tensor:
    """Concatenate maps ``[B, C, H_l, W_l]`` of all levels to ``[B, N, C]``."""
    return torch.cat([m.flatten(2).transpose(1, 2) for m in maps], dim=1)
