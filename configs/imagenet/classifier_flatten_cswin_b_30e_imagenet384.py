# FLatten-CSwin-B at 384 pixels, 30 epochs from the 224-pixel classifier: the paper has 85.5% top-1 (FLatten, Table 8). Positions
# of the smaller grid do not load as they are: resize them first, or start from the official weights.
_base_ = [
    "../_base_/models/image_classifier.py",
    "../_base_/datasets/imagenet_384.py",
    "../_base_/schedules/imagenet_finetune_30e.py",
    "../_base_/runtime_mmpretrain.py",
]

model = dict(
    backbone=dict(type="mmlisa.FLattenCSwin", arch="base-384", out_indices=[-1], drop_path_rate=0.5),
    head=dict(type="LinearClsHead", in_channels=768),
    train_cfg=dict(augments=[dict(type="Mixup", alpha=0.8), dict(type="CutMix", alpha=1.0)]),
)
