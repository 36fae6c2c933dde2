# FLatten-PVT-S, ImageNet-1K, 300 epochs: the paper has 81.7% top-1 (FLatten, Table 8).
_base_ = "./classifier_flatten_pvt_t_300e_imagenet.py"

model = dict(backbone=dict(arch="small"))
