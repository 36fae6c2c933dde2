# Mask R-CNN as ViTDet, DINOv3-S, 100 epochs. Ours: ViTDet's recipe with another backbone.
_base_ = "./_base_/vitdet.py"

model = dict(
    backbone=dict(
        type="mmlisa.DINOv3",
        arch="small",
        image_size=1024,
        drop_path_rate=0.1,
        init_cfg=dict(type="mmlisa.PublishedWeights", source="timm:vit_small_patch16_dinov3.lvd1689m"),
    ),
    neck=dict(in_channels=384),
)
_no_decay = dict(decay_mult=0.0)
optim_wrapper = dict(paramwise_cfg=dict(layer_decay=0.7, custom_keys={"reg_token": _no_decay, "gamma": _no_decay}))
