# FLatten-CSwin-T, ImageNet-1K, 300 epochs: the paper has 83.1% top-1 (FLatten, Table 8), with averaged weights.
_base_ = "../_base_/flatten_cswin_imagenet.py"

custom_hooks = [*_base_.custom_hooks, dict(type="EMAHook", momentum=1 - 0.99984 ** (1024 / 2048))]
