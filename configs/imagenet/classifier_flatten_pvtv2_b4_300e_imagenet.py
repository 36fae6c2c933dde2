# FLatten-PVTv2-B4, ImageNet-1K, 300 epochs: the paper has 84.0% top-1 (FLatten, Table 8).
_base_ = "./classifier_flatten_pvtv2_b0_300e_imagenet.py"

model = dict(backbone=dict(arch="b4", drop_path_rate=0.3), head=dict(in_channels=512))
optim_wrapper = dict(clip_grad=dict(_delete_=True, max_norm=1.0))
