# PicoDet, Castling-ESNet-ViT-S, 416 x 416: the paper has AP 31.3 with 3.25 M parameters and 1.06 G MACs (Castling-ViT, Table 3).
_base_ = "./_base_/picodet_416.py"

model = dict(
    backbone=dict(
        type="mmlisa.CastlingESNetViT",
        arch="small",
        attention=dict(type="LinearAngularAttention", pooled=True, aux=True, epsilon=0.02),
    ),
    neck=dict(type="mmlisa.CSPPAN", in_channels=[96, 192, 384], out_channels=96),
    bbox_head=dict(in_channels=96, stacked_convs=2),
)
custom_hooks = [*_base_.custom_hooks, dict(type="mmlisa.CastlingHook")]
