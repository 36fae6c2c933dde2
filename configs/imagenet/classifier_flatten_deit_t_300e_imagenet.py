# FLatten-DeiT-T, ImageNet-1K, 300 epochs: the paper has 74.1% top-1 (FLatten, Table 8).
_base_ = "./classifier_flatten_swin_t_300e_imagenet.py"

model = dict(
    backbone=dict(_delete_=True, type="mmlisa.FLattenDeiT", arch="tiny", out_type="cls_token", drop_path_rate=0.1),
    neck=None,
    head=dict(in_channels=192),
)
optim_wrapper = dict(
    paramwise_cfg=dict(
        custom_keys={"backbone.position": dict(decay_mult=0.0), "cls_token": dict(decay_mult=0.0)},
    ),
    clip_grad=None,
)
