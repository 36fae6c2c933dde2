# DINO, FLatten-Swin-T, 12 epochs. Ours: mmdet's recipe with another backbone.
_base_ = "./_base_/dino_12e.py"

model = dict(
    backbone=dict(
        type="mmlisa.FLattenSwin",
        arch="tiny",
        drop_path_rate=0.2,
        out_indices=(1, 2, 3),
        init_cfg=dict(type="mmlisa.PublishedWeights", source="timm:swin_tiny_patch4_window7_224.ms_in1k"),
    ),
    neck=dict(in_channels=[192, 384, 768]),
)
