# PolaFormer-PVT-L, ImageNet-1K, 300 epochs; the authors print no accuracy.
_base_ = "./classifier_pola_pvt_t_300e_imagenet.py"

model = dict(backbone=dict(arch="pola-large", drop_path_rate=0.3))
optim_wrapper = dict(clip_grad=dict(_delete_=True, max_norm=1.0))
