# UperNet, DINOv2-S, 160k. Ours: mmsegmentation's recipe of BEiT with another backbone, at 512 pixels, which the backbone pads to
# 37 patches.
_base_ = "./_base_/upernet_vit.py"

model = dict(
    backbone=dict(
        type="mmlisa.DINOv2",
        arch="small",
        init_cfg=dict(type="mmlisa.PublishedWeights", source="timm:vit_small_patch14_dinov2.lvd142m"),
    ),
    neck=dict(embed_dim=384),
    decode_head=dict(in_channels=[384, 384, 384, 384]),
    auxiliary_head=dict(in_channels=384),
)
