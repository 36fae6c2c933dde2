# A narrow HyLiSANet under a light Semantic FPN, from scratch on the offline demo data, in minutes on two CPU cores.
_base_ = [
    "./_base_/models/semantic_fpn.py",
    "./_base_/datasets/demo_semantic.py",
    "./_base_/schedules/demo.py",
    "./_base_/runtime_mmseg_iter.py",
]

width = 64  # of the neck and the head
norm_cfg = dict(type="BN")
model = dict(
    data_preprocessor=dict(size=(192, 192)),
    backbone=dict(
        type="mmlisa.LiSANet",
        arch=dict(base="hybrid-small", depths=(1, 2, 3, 1), channels=(32, 64, 128, 160), num_heads=(2, 4, 8, 10)),
        image_size=192,
        # From scratch in a few hundred iterations: batch norm and weights scaled by their fan-in.
        norm_cfg=norm_cfg,
        init_cfg=dict(type="Kaiming", layer=["Linear", "Conv2d"], mode="fan_in", nonlinearity="linear"),
    ),
    neck=dict(in_channels=[32, 64, 128, 160], out_channels=width),
    decode_head=dict(in_channels=[width] * 4, channels=width, dropout_ratio=0.0, num_classes=9, norm_cfg=norm_cfg),
)
