# Castling-LeViT-128, ImageNet-1K, 1000 epochs: the paper has 79.6% top-1 (Castling-ViT, Table 2).
_base_ = "./classifier_castling_levit_256_1000e_imagenet.py"

model = dict(
    backbone=dict(arch="128"),
    head=dict(in_channels=384),
)
