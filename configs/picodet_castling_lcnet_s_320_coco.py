# PicoDet, Castling-LCNet-ViT-S, 320 x 320, from scratch: the paper has AP 27.0, 2.14 M, 0.62 G MACs (Castling-ViT, Table 6).
_base_ = "./_base_/picodet_320.py"

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
