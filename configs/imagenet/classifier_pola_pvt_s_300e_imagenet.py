# PolaFormer-PVT-S, ImageNet-1K, 300 epochs: the authors have 81.9% top-1.
_base_ = "./classifier_pola_pvt_t_300e_imagenet.py"

model = dict(backbone=dict(arch="pola-small"))
