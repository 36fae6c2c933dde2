# FLatten-CSwin-S, ImageNet-1K, 300 epochs: the paper has 83.8% top-1 (FLatten, Table 8), with averaged weights.
_base_ = "./classifier_flatten_cswin_t_300e_imagenet.py"

model = dict(backbone=dict(arch="small", drop_path_rate=0.4))
