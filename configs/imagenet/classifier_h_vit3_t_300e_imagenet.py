# H-ViT³-T, ImageNet-1K, 300 epochs: the paper has 84.0% top-1, with averaged weights and MESA. With --amp, as the authors.
_base_ = [
    "../_base_/models/image_classifier.py",
    "../_base_/datasets/imagenet.py",
    "../_base_/schedules/imagenet_300e.py",
    "../_base_/runtime_mmpretrain.py",
]

model = dict(
    type="mmlisa.SelfDistilledClassifier",
    weight=1.0,
    backbone=dict(type="mmlisa.HViT3", arch="tiny", out_indices=[-1], output_norm=False, drop_path_rate=0.2),
    head=dict(type="LinearClsHead", in_channels=512),
    train_cfg=dict(augments=[dict(type="Mixup", alpha=0.8), dict(type="CutMix", alpha=1.0)]),
)
custom_hooks = [
    *_base_.custom_hooks,
    # The authors' decay is 0.9996^(batch / 4096), at 1024 images.
    dict(type="mmlisa.SelfDistillationHook", distill_from=75, momentum=1 - 0.9996**0.25, update_buffers=True),
]
