# FLatten-CSwin-T, ImageNet-1K, 300 epochs: the paper has 83.1% top-1 (FLatten, Table 8), with averaged weights.
_base_ = "./classifier_flatten_swin_t_300e_imagenet.py"

model = dict(
    backbone=dict(_delete_=True, type="mmlisa.FLattenCSwin", arch="tiny", out_indices=[-1], drop_path_rate=0.2),
    head=dict(in_channels=512),
)
optim_wrapper = dict(clip_grad=None)
custom_hooks = [*_base_.custom_hooks, dict(type="EMAHook", momentum=1 - 0.99984)]
