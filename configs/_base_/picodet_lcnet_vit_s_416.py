# PicoDet, LCNet-ViT-S, 416 x 416, with linear-angular attention and DConv: what Castling-ViT's Table 5 varies.
_base_ = "./picodet_lcnet_vit_m_416.py"

model = dict(
    backbone=dict(arch="small"),
    neck=dict(in_channels=[96, 192, 384], out_channels=96),
    bbox_head=dict(in_channels=96, stacked_convs=2),
)
