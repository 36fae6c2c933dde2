# Mask R-CNN, HyLiSANet-S, 3x: not in the paper; Swin's recipe, with multi-scale training.
_base_ = [
    "./_base_/models/mask_rcnn.py",
    "./_base_/datasets/coco_instance_multiscale.py",
    "./_base_/schedules/swin_3x.py",
    "./_base_/runtime_mmdet.py",
]

pretrained_by = "classifier_hylisanet_s_300e_imagenet.py"

model = dict(
    backbone=dict(type="mmlisa.LiSANet", arch="hybrid-small", drop_path_rate=0.2),
    neck=dict(in_channels=[64, 128, 320, 384]),
)
