# ViT³-S, ImageNet-1K, 300 epochs: the paper has 81.6% top-1.
_base_ = "./classifier_vit3_t_300e_imagenet.py"

model = dict(backbone=dict(arch="small", drop_path_rate=0.1), head=dict(in_channels=384))
