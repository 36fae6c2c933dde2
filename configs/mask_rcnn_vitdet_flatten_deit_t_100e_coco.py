# Mask R-CNN as ViTDet, FLatten-DeiT-T, 100 epochs. Ours: ViTDet's recipe with another backbone.
_base_ = "./_base_/vitdet.py"

model = dict(
    backbone=dict(
        type="mmlisa.FLattenDeiT",
        arch="tiny",
        image_size=1024,
        drop_path_rate=0.1,
        init_cfg=dict(type="mmlisa.PublishedWeights", source="timm:deit_tiny_patch16_224.fb_in1k"),
    ),
    neck=dict(in_channels=192),
)
optim_wrapper = dict(paramwise_cfg=dict(layer_decay=0.7))
