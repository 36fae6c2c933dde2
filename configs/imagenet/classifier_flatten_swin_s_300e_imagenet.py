# FLatten-Swin-S, ImageNet-1K, 300 epochs: the paper has 83.5% top-1 (FLatten, Table 8).
_base_ = "./classifier_flatten_swin_t_300e_imagenet.py"

model = dict(backbone=dict(arch="small", drop_path_rate=0.3))
