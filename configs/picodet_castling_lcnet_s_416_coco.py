# PicoDet, Castling-LCNet-ViT-S, 416 x 416, from scratch: the paper has AP 30.4 (Castling-ViT, Table 5).
_base_ = "./_base_/picodet_lcnet_vit_m_416.py"

model = dict(
    backbone=dict(arch="small", attention=dict(aux=True, epsilon=0.02)),
    neck=dict(in_channels=[96, 192, 384], out_channels=96),
    bbox_head=dict(in_channels=96, stacked_convs=2),
)
custom_hooks = [*_base_.custom_hooks, dict(type="mmlisa.CastlingHook")]
