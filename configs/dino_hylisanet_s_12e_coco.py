# DINO, HyLiSANet-S, 12 epochs. Ours: mmdet's recipe with another backbone.
_base_ = "./_base_/dino_12e.py"

pretrained_by = "classifier_hylisanet_s_300e_imagenet.py"

model = dict(
    backbone=dict(
        type="mmlisa.LiSANet",
        arch="hybrid-small",
        drop_path_rate=0.1,
        out_indices=(1, 2, 3),
    ),
    neck=dict(in_channels=[128, 320, 384]),
)
