# A narrow HyLiSANet classifies the objects of the offline demo data, from scratch, in minutes on two CPU cores.
_base_ = [
    "./_base_/models/image_classifier.py",
    "./_base_/datasets/demo_classification.py",
    "./_base_/schedules/demo.py",
    "./_base_/runtime_mmpretrain_iter.py",
]

model = dict(
    data_preprocessor=dict(num_classes=8),
    backbone=dict(
        type="mmlisa.LiSANet",
        arch=dict(base="hybrid-small", depths=(1, 1, 2, 1), channels=(32, 64, 128, 160), num_heads=(2, 4, 8, 10)),
        image_size=64,
        out_indices=[-1],
        # From scratch in a few hundred iterations: batch norm and weights scaled by their fan-in.
        norm_cfg=dict(type="BN"),
        init_cfg=dict(type="Kaiming", layer=["Linear", "Conv2d"], mode="fan_in", nonlinearity="linear"),
    ),
    head=dict(num_classes=8, in_channels=160),
)
