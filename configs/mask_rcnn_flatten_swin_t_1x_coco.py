# Mask R-CNN, FLatten-Swin-T, 1x: the paper has box AP 44.2, mask AP 40.2 (FLatten, Table 2a).
_base_ = [
    "./_base_/models/mask_rcnn.py",
    "./_base_/datasets/coco_instance_multiscale.py",
    "./_base_/schedules/swin_1x.py",
    "./_base_/runtime_mmdet.py",
]

# The paper starts from ImageNet weights, this classifier's or the authors': tools/train.py CONFIG --pretrained CHECKPOINT
pretrained_by = "classifier_flatten_swin_t_300e_imagenet.py"

model = dict(
    backbone=dict(
        type="mmlisa.FLattenSwin",
        arch="tiny",
        drop_path_rate=0.1,
    ),
    neck=dict(in_channels=[96, 192, 384, 768]),
)
