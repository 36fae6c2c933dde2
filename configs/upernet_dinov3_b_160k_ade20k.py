# UperNet, DINOv3-B, 160k. Ours: mmsegmentation's recipe of BEiT with another backbone, at 512 pixels.
_base_ = "./_base_/upernet_vit.py"

model = dict(
    backbone=dict(
        type="mmlisa.DINOv3",
        arch="base",
        image_size=512,
        init_cfg=dict(type="mmlisa.PublishedWeights", source="timm:vit_base_patch16_dinov3.lvd1689m"),
    ),
    neck=dict(embed_dim=768),
    decode_head=dict(in_channels=[768, 768, 768, 768]),
    auxiliary_head=dict(in_channels=768),
)
