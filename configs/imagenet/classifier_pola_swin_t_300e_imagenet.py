# PolaFormer-Swin-T, ImageNet-1K, 300 epochs: the authors have 82.6% top-1.
_base_ = [
    "../_base_/models/image_classifier.py",
    "../_base_/datasets/imagenet.py",
    "../_base_/schedules/imagenet_300e.py",
    "../_base_/runtime_mmpretrain.py",
]

model = dict(
    backbone=dict(type="mmlisa.FLattenSwin", arch="pola-tiny", out_indices=[-1], drop_path_rate=0.2),
    head=dict(type="LinearClsHead", in_channels=768),
    train_cfg=dict(augments=[dict(type="Mixup", alpha=0.8), dict(type="CutMix", alpha=1.0)]),
)
# The keys' positional_encoding, power and scale decay, as in the authors' code.
optim_wrapper = dict(paramwise_cfg=dict(custom_keys={"relative_position_bias_table": dict(decay_mult=0.0)}))
