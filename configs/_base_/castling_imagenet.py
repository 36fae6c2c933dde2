# Castling-ViT's classifiers: the paper names no augmentation; this is that of their hosts LeViT, DeiT and MViTv2.
_base_ = [
    "./models/image_classifier.py",
    "./datasets/imagenet.py",
    "./schedules/castling_1000e.py",
    "./runtime_mmpretrain.py",
]

model = dict(
    head=dict(type="LinearClsHead"),
    train_cfg=dict(augments=[dict(type="Mixup", alpha=0.8), dict(type="CutMix", alpha=1.0)]),
)
