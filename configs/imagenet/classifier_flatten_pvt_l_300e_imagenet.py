# FLatten-PVT-L, ImageNet-1K, 300 epochs: the paper has 83.4% top-1 (FLatten, Table 8).
_base_ = "./classifier_flatten_pvt_t_300e_imagenet.py"

model = dict(backbone=dict(arch="large", drop_path_rate=0.3))
optim_wrapper = dict(clip_grad=dict(_delete_=True, max_norm=1.0))
