# ViT³-B, ImageNet-1K, 300 epochs: the paper has 82.6% top-1.
_base_ = "./classifier_vit3_t_300e_imagenet.py"

model = dict(backbone=dict(arch="base", drop_path_rate=0.4), head=dict(in_channels=768))
