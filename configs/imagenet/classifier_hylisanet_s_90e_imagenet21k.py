# HyLiSANet-S, pretrained on ImageNet-21K: 90 epochs, AdamW 4e-3 at 4096 images, 5 epochs of warm-up (LiSA's appendix
# A.2; else ConvNeXt's).
_base_ = [
    "../_base_/models/image_classifier.py",
    "../_base_/datasets/imagenet21k.py",
    "../_base_/schedules/imagenet_300e.py",
    "../_base_/runtime_mmpretrain.py",
]

num_classes = 21841
model = dict(
    data_preprocessor=dict(num_classes=num_classes),
    backbone=dict(type="mmlisa.LiSANet", arch="hybrid-small", out_indices=[-1], drop_path_rate=0.1),
    head=dict(in_channels=384, num_classes=num_classes),
    train_cfg=dict(augments=[dict(type="Mixup", alpha=0.8), dict(type="CutMix", alpha=1.0)]),
)
train_cfg = dict(max_epochs=90)
val_cfg = None
test_cfg = None
# From next to nothing and down to 1e-6: ConvNeXt's.
param_scheduler = [
    dict(type="LinearLR", start_factor=1e-6, by_epoch=True, begin=0, end=5, convert_to_iter_based=True),
    dict(type="CosineAnnealingLR", eta_min=1e-6, by_epoch=True, begin=5, end=90, convert_to_iter_based=True),
]
optim_wrapper = dict(optimizer=dict(lr=4e-3), clip_grad=None)
auto_scale_lr = dict(base_batch_size=4096)
