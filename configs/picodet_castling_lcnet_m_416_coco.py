# Castling-LCNet-ViT-M, from scratch: the paper has AP 35.3 with 7.53 M parameters and 3.15 G MACs (Castling-ViT, Tables 5 and 7).
_base_ = "./picodet_castling_lcnet_s_416_coco.py"

model = dict(
    backbone=dict(arch="medium"),
    neck=dict(in_channels=[192, 384, 768], out_channels=128),
    bbox_head=dict(in_channels=128, stacked_convs=4),
)
