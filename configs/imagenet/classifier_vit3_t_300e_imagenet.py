# ViT³-T, ImageNet-1K, 300 epochs: the paper has 76.5% top-1. With --amp, as the authors.
_base_ = [
    "../_base_/models/image_classifier.py",
    "../_base_/datasets/imagenet.py",
    "../_base_/schedules/imagenet_300e.py",
    "../_base_/runtime_mmpretrain.py",
]

model = dict(
    backbone=dict(type="mmlisa.ViT3", arch="tiny", drop_path_rate=0.0),
    head=dict(type="LinearClsHead", in_channels=192),
    train_cfg=dict(augments=[dict(type="Mixup", alpha=0.8), dict(type="CutMix", alpha=1.0)]),
)
