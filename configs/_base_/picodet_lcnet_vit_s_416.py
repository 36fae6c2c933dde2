# PicoDet, LCNet-ViT-S, 416 x 416, with linear-angular attention and DConv: what Castling-ViT's Table 5 varies. One
# block per stage, fitted to the counts; the text replaces "all layers in last two stages" and has "DWConv in the middle
# of MLP layers", here on the values.
_base_ = "./picodet_lcnet_vit_m_416.py"

model = dict(
    backbone=dict(arch="small"),
    neck=dict(in_channels=[96, 192, 384], out_channels=96),
    bbox_head=dict(in_channels=96, stacked_convs=2),
)
