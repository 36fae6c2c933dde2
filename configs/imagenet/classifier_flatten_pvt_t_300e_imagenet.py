# FLatten-PVT-T, ImageNet-1K, 300 epochs: the paper has 77.8% top-1 (FLatten, Table 8).
_base_ = "./classifier_flatten_swin_t_300e_imagenet.py"

model = dict(
    backbone=dict(_delete_=True, type="mmlisa.FLattenPVT", arch="tiny", out_indices=[-1], drop_path_rate=0.1),
    head=dict(in_channels=512),
)
optim_wrapper = dict(
    paramwise_cfg=dict(custom_keys={f"embeds.{i}.position": dict(decay_mult=0.0) for i in range(4)}), clip_grad=None
)
