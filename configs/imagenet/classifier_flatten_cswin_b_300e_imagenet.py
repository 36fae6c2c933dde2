# FLatten-CSwin-B, ImageNet-1K, 300 epochs: the paper has 84.5% top-1 (FLatten, Table 8), with averaged weights.
_base_ = "../_base_/flatten_cswin_imagenet.py"

model = dict(backbone=dict(arch="base", drop_path_rate=0.5), head=dict(in_channels=768))
custom_hooks = [*_base_.custom_hooks, dict(type="EMAHook", momentum=1 - 0.99982 ** (1024 / 512))]
