# Castling-LeViT-192, ImageNet-1K, 1000 epochs: the paper has 81.3% top-1 (Castling-ViT, Table 2).
_base_ = "./classifier_castling_levit_256_1000e_imagenet.py"

model = dict(
    backbone=dict(arch="192"),
    head=dict(in_channels=384),
)
