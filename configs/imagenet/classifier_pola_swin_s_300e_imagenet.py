# PolaFormer-Swin-S, ImageNet-1K, 300 epochs: the authors have 83.6% top-1.
_base_ = "./classifier_pola_swin_t_300e_imagenet.py"

model = dict(backbone=dict(arch="pola-small", drop_path_rate=0.3))
