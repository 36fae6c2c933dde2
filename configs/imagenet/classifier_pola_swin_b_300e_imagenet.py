# PolaFormer-Swin-B, ImageNet-1K, 300 epochs: the authors have 83.8% top-1.
_base_ = "./classifier_pola_swin_t_300e_imagenet.py"

model = dict(backbone=dict(arch="pola-base", drop_path_rate=0.5), head=dict(in_channels=1024))
