# Castling-LeViT-256, ImageNet-1K, 1000 epochs: the paper has 82.6% top-1, distilled from a teacher of 85.5%.
_base_ = [
    "../_base_/models/image_classifier.py",
    "../_base_/datasets/imagenet.py",
    "../_base_/schedules/castling_1000e.py",
    "../_base_/runtime_mmpretrain.py",
]

model = dict(
    backbone=dict(type="mmlisa.CastlingLeViT", arch="256", out_indices=(2,)),
    head=dict(type="LinearClsHead", in_channels=512),
)
train_dataloader = dict(batch_size=64)
custom_hooks = [*_base_.custom_hooks, dict(type="mmlisa.CastlingHook", interval=500)]
