# Castling-ESNet-ViT-M: the paper has AP 34.0 with 6.01 M parameters and 2.00 G MACs (Castling-ViT, Table 3).
_base_ = "./picodet_castling_esnet_s_416_coco.py"

model = dict(
    backbone=dict(arch="medium"),
    neck=dict(in_channels=[128, 256, 512], out_channels=128),
    bbox_head=dict(in_channels=128, stacked_convs=4),
)
