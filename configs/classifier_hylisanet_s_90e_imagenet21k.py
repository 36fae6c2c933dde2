# HyLiSANet-S, pretrained on ImageNet-21K: 90 epochs, AdamW 4e-3 at 4096 images, 5 epochs of warm-up (LiSA's appendix
# A.2; else ConvNeXt's).
_base_ = [
    "./_base_/models/image_classifier.py",
    "./_base_/datasets/imagenet21k.py",
    "./_base_/schedules/imagenet_300e.py",
    "./_base_/runtime_mmpretrain.py",
]

num_classes = 21841
model = dict(
    data_preprocessor=dict(num_classes=num_classes),
    backbone=dict(type="mmlisa.LiSANet", arch="hybrid-small", out_indices=[-1], drop_path_rate=0.1),
    head=dict(in_channels=384, num_classes=num_classes),
    train_cfg=dict(augments=[dict(type="Mixup", alpha=0.8), dict(type="CutMix", alpha=1.0)]),
)
max_epochs, warmup_epochs = 90, 5
train_cfg = dict(max_epochs=max_epochs)
val_cfg = None
test_cfg = None
param_scheduler = [
    dict(_base_.param_scheduler[0], end=warmup_epochs),
    dict(_base_.param_scheduler[1], begin=warmup_epochs, end=max_epochs),
]
optim_wrapper = dict(optimizer=dict(lr=4e-3), clip_grad=None)
auto_scale_lr = dict(base_batch_size=4096)
