# FLatten-Swin-B, ImageNet-1K, 300 epochs: the paper has 83.8% top-1 (FLatten, Table 8).
_base_ = "./classifier_flatten_swin_t_300e_imagenet.py"

model = dict(backbone=dict(arch="base", drop_path_rate=0.5), head=dict(in_channels=1024))
