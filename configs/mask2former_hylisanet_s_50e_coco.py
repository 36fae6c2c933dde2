# Mask2Former, HyLiSANet-S, 50 epochs. Ours: mmdet's recipe with another backbone.
_base_ = "./_base_/mask2former_instance.py"

pretrained_by = "classifier_hylisanet_s_300e_imagenet.py"

model = dict(
    backbone=dict(
        type="mmlisa.LiSANet",
        arch="hybrid-small",
        drop_path_rate=0.3,
    ),
    panoptic_head=dict(in_channels=[64, 128, 320, 384]),
)
