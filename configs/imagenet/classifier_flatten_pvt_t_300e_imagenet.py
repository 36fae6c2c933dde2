# FLatten-PVT-T, ImageNet-1K, 300 epochs: the paper has 77.8% top-1 (FLatten, Table 8).
_base_ = [
    "../_base_/models/image_classifier.py",
    "../_base_/datasets/imagenet_squashed.py",
    "../_base_/schedules/flatten_300e.py",
    "../_base_/runtime_mmpretrain.py",
]

model = dict(
    backbone=dict(type="mmlisa.FLattenPVT", arch="tiny", out_indices=[-1], drop_path_rate=0.1),
    head=dict(type="LinearClsHead", in_channels=512),
    train_cfg=dict(augments=[dict(type="Mixup", alpha=0.8), dict(type="CutMix", alpha=1.0)]),
)
