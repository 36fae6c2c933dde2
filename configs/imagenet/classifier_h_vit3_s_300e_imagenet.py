# H-ViT³-S, ImageNet-1K, 300 epochs: the paper has 84.9% top-1, with averaged weights and MESA.
_base_ = "./classifier_h_vit3_t_300e_imagenet.py"

model = dict(weight=1.5, backbone=dict(arch="small", drop_path_rate=0.4))
