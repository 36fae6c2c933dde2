# RTMDet-Ins-L, iViT-T, 300 epochs. Ours: mmdet's recipe with another backbone.
_base_ = "./_base_/rtmdet_ins_l.py"

model = dict(
    backbone=dict(
        type="mmlisa.iViT",
        arch="tiny",
        drop_path_rate=0.2,
        out_indices=(1, 2, 3),
        init_cfg=dict(type="mmlisa.PublishedWeights", source="timm:caformer_s18.sail_in1k"),
    ),
    neck=dict(in_channels=[128, 320, 512]),
)
