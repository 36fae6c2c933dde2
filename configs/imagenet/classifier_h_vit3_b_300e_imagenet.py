# H-ViT³-B, ImageNet-1K, 300 epochs: the paper has 85.5% top-1, with averaged weights and MESA.
_base_ = "./classifier_h_vit3_t_300e_imagenet.py"

model = dict(
    weight=2.0,
    backbone=dict(arch="base", drop_path_rate=0.6),
    head=dict(in_channels=640),
)
