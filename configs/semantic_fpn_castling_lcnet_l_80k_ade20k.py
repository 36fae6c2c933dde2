# Semantic FPN on Castling-LCNet-ViT-L, 80k; the paper has no such row.
_base_ = [
    "./_base_/models/semantic_fpn.py",
    "./_base_/datasets/ade20k.py",
    "./_base_/schedules/pvt_80k.py",
    "./_base_/runtime_mmseg.py",
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
