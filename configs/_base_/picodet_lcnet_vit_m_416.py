# PicoDet, LCNet-ViT-M, 416 x 416, with linear-angular attention and DConv: what Castling-ViT's Tables 5 and 7 vary. One
# block per stage, fitted to the counts; the text replaces "all layers in last two stages" and has "DWConv in the middle
# of MLP layers", here on the values.
_base_ = "./picodet_416.py"

model = dict(
    backbone=dict(
        type="mmlisa.CastlingLCNetViT",
        arch="medium",
        out_indices=(1, 2, 3),
        attention=dict(type="LinearAngularAttention", pooled=True, qkv_bias=False, aux=False),
    ),
    neck=dict(type="mmlisa.LCPAN", in_channels=[192, 384, 768], out_channels=128),
    bbox_head=dict(in_channels=128, stacked_convs=4),
)
