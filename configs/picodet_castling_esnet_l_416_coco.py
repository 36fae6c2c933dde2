# Castling-ESNet-ViT-L: the paper has AP 35.0 with 9.32 M parameters and 3.03 G MACs (Castling-ViT, Table 3).
_base_ = "./picodet_castling_esnet_s_416_coco.py"

model = dict(
    backbone=dict(arch="large"),
    neck=dict(in_channels=[160, 320, 640], out_channels=160),
    bbox_head=dict(in_channels=160, stacked_convs=4),
)
