# FLatten-PVTv2-B1, ImageNet-1K, 300 epochs: the paper has 79.5% top-1 (FLatten, Table 8).
_base_ = "./classifier_flatten_pvtv2_b0_300e_imagenet.py"

model = dict(backbone=dict(arch="b1"), head=dict(in_channels=512))
