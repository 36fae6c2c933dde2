# FLatten-CSwin-S, ImageNet-1K, 300 epochs: the paper has 83.8% top-1 (FLatten, Table 8), with averaged weights.
_base_ = "../_base_/flatten_cswin_imagenet.py"

model = dict(backbone=dict(arch="small", drop_path_rate=0.4))
custom_hooks = [*_base_.custom_hooks, dict(type="EMAHook", momentum=1 - 0.99984)]
