# MILA-B, ImageNet-1K, 300 epochs: the paper has 85.3% top-1, with averaged weights and MESA.
_base_ = "./classifier_mila_t_300e_imagenet.py"

model = dict(
    weight=2.0,
    backbone=dict(arch="base", drop_path_rate=0.5),
    head=dict(in_channels=768),
)
