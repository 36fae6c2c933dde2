# FLatten-PVTv2-B0, ImageNet-1K, 300 epochs: the paper has 71.1% top-1 (FLatten, Table 8).
_base_ = "./classifier_flatten_swin_t_300e_imagenet.py"

model = dict(
    backbone=dict(_delete_=True, type="mmlisa.FLattenPVTv2", arch="b0", out_indices=[-1], drop_path_rate=0.1),
    head=dict(in_channels=256),
)
optim_wrapper = dict(clip_grad=None)
