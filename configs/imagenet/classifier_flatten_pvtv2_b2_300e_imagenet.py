# FLatten-PVTv2-B2, ImageNet-1K, 300 epochs: the paper has 82.5% top-1 (FLatten, Table 8).
_base_ = "./classifier_flatten_pvtv2_b0_300e_imagenet.py"

model = dict(backbone=dict(arch="b2"), head=dict(in_channels=512))
