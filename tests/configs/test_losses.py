"""Castling backbones under heads that other libraries bring: a loss, gradients everywhere, a prediction."""

from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import DefaultScope
from mmengine.structures import InstanceData, PixelData

from mmlisa.models.attention import castling_operators
from mmlisa.registry import MODELS

CONFIGS = Path(__file__).parents[2] / "configs"
# What is made smaller: name -> (what its parts change, side of the image).
CASES = {
    "mask2former_castling_vit_b_160k_ade20k.py": (
        dict(
            backbone=dict(arch=dict(base="base", depth=4, channels=96, num_heads=3), out_indices=(0, 1, 2, 3)),
            neck=dict(embed_dim=96),
            decode_head=dict(in_channels=[96] * 4),
            data_preprocessor=dict(size=(128, 128)),
        ),
        128,
    ),
    "semantic_fpn_castling_lcnet_l_80k_ade20k.py": (dict(data_preprocessor=dict(size=(128, 128))), 128),
    "mask_rcnn_castling_lcnet_l_1x_coco.py": (dict(), 160),
}


def sample(scope: str, side: int) -> object:
    if scope == "mmseg":
        from mmseg.structures import SegDataSample

        labels = torch.zeros(1, side, side, dtype=torch.long)
        labels[:, : side // 2] = 7
        return SegDataSample(
            gt_sem_seg=PixelData(data=labels), metainfo=dict(img_shape=(side, side), ori_shape=(side, side))
        )
    from mmdet.structures import DetDataSample
    from mmdet.structures.mask import BitmapMasks

    masks = torch.zeros(1, side, side, dtype=torch.uint8)
    masks[:, 20:90, 30:120] = 1
    instances = InstanceData(
        bboxes=torch.tensor([[30.0, 20.0, 120.0, 90.0]]),
        labels=torch.tensor([3]),
        masks=BitmapMasks(masks.numpy(), side, side),
    )
    shapes = dict.fromkeys(("img_shape", "ori_shape", "batch_input_shape", "pad_shape"), (side, side))
    return DetDataSample(
        gt_instances=instances,
        ignored_instances=InstanceData(bboxes=torch.zeros(0, 4)),
        metainfo=dict(shapes, scale_factor=(1.0, 1.0)),
    )


@pytest.mark.parametrize("name", CASES)
def test_a_step_and_a_prediction(name):
    torch.manual_seed(0)
    options, side = CASES[name]
    cfg = Config.fromfile(CONFIGS / name)
    for part, values in options.items():
        cfg.model[part].update(values)
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        model = MODELS.build(cfg.model)
        model.init_weights()
        data = dict(inputs=[torch.randint(0, 256, (3, side, side), dtype=torch.uint8) for _ in range(2)])
        data["data_samples"] = [sample(cfg.default_scope, side) for _ in range(2)]
        model.train()
        losses = model(**model.data_preprocessor(data, training=True), mode="loss")
        loss, _ = model.parse_losses(losses)
        assert loss.isfinite()
        loss.backward()
        operators = castling_operators(model)
        assert operators
        assert all(operator.mask_count is not None for operator in operators.values())
        assert not [n for n, p in model.backbone.named_parameters() if p.requires_grad and p.grad is None]
        model.eval()
        with torch.no_grad():
            results = model(**model.data_preprocessor(data), mode="predict")
        assert len(results) == 2
