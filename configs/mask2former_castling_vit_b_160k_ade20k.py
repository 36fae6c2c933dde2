# Mask2Former, Castling-ViT-Base, 160k: the paper has mIoU 34.67, and 48.44 from MAE's weights (Castling-ViT, Table 4).
_base_ = [
    "./_base_/models/mask2former.py",
    "./_base_/datasets/ade20k.py",
    "./_base_/schedules/mask2former_160k.py",
    "./_base_/runtime_mmseg.py",
]

model = dict(
    backbone=dict(
        type="mmlisa.CastlingViT",
        arch="base",
        out_indices=(2, 5, 8, 11),
        # MAE's weights, with the names of mmlisa's backbone:
        # init_cfg=dict(type="Pretrained", checkpoint="mae_vit_b.pth"),
    ),
    neck=dict(type="Feature2Pyramid", embed_dim=768, rescales=[4, 2, 1, 0.5]),
    decode_head=dict(in_channels=[768, 768, 768, 768]),
)
train_dataloader = dict(batch_size=2)
custom_hooks = [*_base_.custom_hooks, dict(type="mmlisa.CastlingHook", interval=500)]
