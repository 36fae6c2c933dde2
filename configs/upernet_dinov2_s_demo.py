# DINOv2-S under a light UperNet, on the offline demo data, in minutes on two CPU cores. It starts from random weights, from
# DINOv2's by `mmlisa train upernet_dinov2_s_demo.py --pretrained timm:vit_small_patch14_dinov2.lvd142m`.
_base_ = [
    "./_base_/models/upernet.py",
    "./_base_/datasets/demo_semantic.py",
    "./_base_/schedules/demo_vit.py",
    "./_base_/runtime_mmseg_iter.py",
]

norm_cfg = dict(type="BN")
model = dict(
    # Whole patches of 14 pixels, on the coarsest map, too.
    data_preprocessor=dict(size=(196, 196), test_cfg=dict(size_divisor=28)),
    backbone=dict(type="mmlisa.DINOv2", arch="small", out_indices=(3, 5, 7, 11), drop_path_rate=0.1),
    neck=dict(type="Feature2Pyramid", embed_dim=384, rescales=[4, 2, 1, 0.5], norm_cfg=norm_cfg),
    decode_head=dict(in_channels=[384] * 4, channels=64, num_classes=9, norm_cfg=norm_cfg),
    auxiliary_head=dict(in_channels=384, channels=32, num_classes=9, norm_cfg=norm_cfg),
)
