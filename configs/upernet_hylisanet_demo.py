# A narrow HyLiSANet under a light UperNet, from scratch on the offline demo data, in minutes on two CPU cores.
_base_ = [
    "./_base_/models/upernet.py",
    "./_base_/datasets/demo_semantic.py",
    "./_base_/schedules/demo.py",
    "./_base_/runtime_mmseg_iter.py",
]

norm_cfg = dict(type="BN")
channels = [32, 64, 128, 160]
model = dict(
    data_preprocessor=dict(size=(192, 192)),
    backbone=dict(
        type="mmlisa.LiSANet",
        arch=dict(base="hybrid-small", depths=(1, 2, 3, 1), channels=channels, num_heads=(2, 4, 8, 10)),
        image_size=192,
        # From scratch in a few hundred iterations: batch norm and weights scaled by their fan-in.
        norm_cfg=norm_cfg,
        init_cfg=dict(type="Kaiming", layer=["Linear", "Conv2d"], mode="fan_in", nonlinearity="linear"),
    ),
    decode_head=dict(in_channels=channels, channels=64, dropout_ratio=0.0, num_classes=9, norm_cfg=norm_cfg),
    auxiliary_head=dict(in_channels=channels[2], channels=32, dropout_ratio=0.0, num_classes=9, norm_cfg=norm_cfg),
)
# The pyramid pooling needs longer than the other demo heads.
train_cfg = dict(max_iters=650, val_interval=325)
param_scheduler = [
    dict(type="LinearLR", start_factor=0.01, by_epoch=False, begin=0, end=30),
    dict(type="CosineAnnealingLR", by_epoch=False, begin=30, end=650, eta_min=1e-5),
]
