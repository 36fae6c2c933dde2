# PolaFormer-PVT-T, ImageNet-1K, 300 epochs: the authors have 78.8% top-1.
_base_ = [
    "../_base_/models/image_classifier.py",
    "../_base_/datasets/imagenet.py",
    "../_base_/schedules/flatten_300e.py",
    "../_base_/runtime_mmpretrain.py",
]

model = dict(
    backbone=dict(type="mmlisa.FLattenPVT", arch="pola-tiny", out_indices=[-1], drop_path_rate=0.1),
    head=dict(type="LinearClsHead", in_channels=512),
    train_cfg=dict(augments=[dict(type="Mixup", alpha=0.8), dict(type="CutMix", alpha=1.0)]),
)
# The authors' code trains ten epochs more at the last rate.
train_cfg = dict(max_epochs=310)
param_scheduler = [
    dict(type="LinearLR", start_factor=2e-3, by_epoch=True, begin=0, end=5, convert_to_iter_based=True),
    dict(
        type="CosineAnnealingLR", eta_min=1e-5 * 1024 / 512, by_epoch=True, begin=0, end=300, convert_to_iter_based=True
    ),
]
