# FLatten-DeiT-T, ImageNet-1K, 300 epochs: the paper has 74.1% top-1 (FLatten, Table 8). No code of it is public: 6.19 M
# parameters, 6.1 M in the paper.
_base_ = [
    "../_base_/models/image_classifier.py",
    "../_base_/datasets/imagenet_squashed.py",
    "../_base_/schedules/flatten_300e.py",
    "../_base_/runtime_mmpretrain.py",
]

model = dict(
    backbone=dict(type="mmlisa.FLattenDeiT", arch="tiny", out_type="cls_token", drop_path_rate=0.1),
    neck=None,
    head=dict(type="LinearClsHead", in_channels=192),
    train_cfg=dict(augments=[dict(type="Mixup", alpha=0.8), dict(type="CutMix", alpha=1.0)]),
)
# "The exact same settings as the corresponding baseline" (Sec. 5): DeiT repeats each image three times.
train_dataloader = dict(sampler=dict(type="RepeatAugSampler", shuffle=True, _delete_=True))
# DeiT's positions and class token do not decay.
optim_wrapper = dict(
    paramwise_cfg=dict(custom_keys={"backbone.stem.position": dict(decay_mult=0.0), "cls_token": dict(decay_mult=0.0)})
)
