# FLatten-CSwin on ImageNet-1K; each size averages its weights with a decay of its own.
_base_ = [
    "./models/image_classifier.py",
    "./datasets/imagenet_squashed.py",
    "./schedules/imagenet_310e.py",
    "./runtime_mmpretrain.py",
]

model = dict(
    backbone=dict(type="mmlisa.FLattenCSwin", arch="tiny", out_indices=[-1], drop_path_rate=0.2),
    head=dict(type="LinearClsHead", in_channels=512),
    train_cfg=dict(augments=[dict(type="Mixup", alpha=0.8), dict(type="CutMix", alpha=1.0)]),
)
