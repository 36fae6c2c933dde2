# Mask R-CNN on Castling-LCNet-ViT-L, 1x: the mobile backbone under a two-stage head; the paper has no such row.
_base_ = [
    "./_base_/models/mask_rcnn.py",
    "./_base_/datasets/coco_instance.py",
    "./_base_/schedules/swin_1x.py",
    "./_base_/runtime_mmdet.py",
]

model = dict(
    backbone=dict(
        type="mmlisa.CastlingLCNetViT",
        arch="large",
        attention=dict(type="LinearAngularAttention", pooled=True, qkv_bias=False, aux=True, epsilon=0.02),
    ),
    neck=dict(in_channels=[128, 256, 512, 1024]),
)
custom_hooks = [*_base_.custom_hooks, dict(type="mmlisa.CastlingHook", interval=500)]
