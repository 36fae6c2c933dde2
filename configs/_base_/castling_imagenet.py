# Castling-ViT's classifiers. The paper names neither augmentation nor stochastic depth: both are those of their hosts LeViT (0.1
# in 384), DeiT (0.1) and MViTv2 (0.1 in T and S, 0.3 in B). Repeated augmentation, which LeViT and DeiT have, is left out.
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
