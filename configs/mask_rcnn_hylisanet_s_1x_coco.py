# Mask R-CNN, HyLiSANet-S, 1x: the paper has box AP 47.7, mask AP 42.6 (LiSA journal version, Table 9; appendix A.2).
# Its appendix has one scale in training, a short side of 800, and refers to Swin for the rest. The kernels keep their
# taps at this resolution, so that attention reaches 7 tokens in stage 3 (docs/lisa.md).
_base_ = [
    "./_base_/models/mask_rcnn.py",
    "./_base_/datasets/coco_instance.py",
    "./_base_/schedules/swin_1x.py",
    "./_base_/runtime_mmdet.py",
]

# The paper starts from ImageNet weights: tools/train.py CONFIG --pretrained CHECKPOINT
pretrained_by = "classifier_hylisanet_s_300e_imagenet.py"

model = dict(
    backbone=dict(
        type="mmlisa.LiSANet",
        arch="hybrid-small",
        drop_path_rate=0.1,
    ),
    neck=dict(in_channels=[64, 128, 320, 384]),
)
