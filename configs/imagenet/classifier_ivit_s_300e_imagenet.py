# iViT-S, ImageNet-1K, 300 epochs: the paper has 84.5% top-1 (iViT, Tables 5 and 9).
_base_ = "./classifier_ivit_t_300e_imagenet.py"

model = dict(backbone=dict(arch="small", drop_path_rate=0.3))
