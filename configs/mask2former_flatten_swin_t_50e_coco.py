# Mask2Former, FLatten-Swin-T, 50 epochs. Ours: mmdet's recipe with another backbone.
_base_ = "./_base_/mask2former_instance.py"

model = dict(
    backbone=dict(
        type="mmlisa.FLattenSwin",
        arch="tiny",
        drop_path_rate=0.3,
        init_cfg=dict(type="mmlisa.PublishedWeights", source="timm:swin_tiny_patch4_window7_224.ms_in1k"),
    ),
    panoptic_head=dict(in_channels=[96, 192, 384, 768]),
)
