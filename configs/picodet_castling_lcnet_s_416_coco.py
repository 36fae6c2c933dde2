# PicoDet, Castling-LCNet-ViT-S, 416 x 416, from scratch: the paper has AP 30.4 (Castling-ViT, Table 5).
_base_ = "./_base_/picodet_416.py"

model = dict(
    backbone=dict(
        type="mmlisa.CastlingLCNetViT",
        arch="small",
        out_indices=(1, 2, 3),
        attention=dict(type="LinearAngularAttention", pooled=True, qkv_bias=False, aux=True, epsilon=0.02),
    ),
    neck=dict(type="mmlisa.LCPAN", in_channels=[96, 192, 384], out_channels=96),
    bbox_head=dict(in_channels=96, stacked_convs=2),
)
custom_hooks = [*_base_.custom_hooks, dict(type="mmlisa.CastlingHook")]
