# Cascade Mask R-CNN, FLatten-Swin-T, 3x: the paper has box AP 50.8, mask AP 44.1 (FLatten, Table 2b).
_base_ = [
    "./_base_/models/cascade_mask_rcnn.py",
    "./_base_/datasets/coco_instance_multiscale.py",
    "./_base_/schedules/swin_3x.py",
    "./_base_/runtime_mmdet.py",
]

# The paper starts from ImageNet weights, this classifier's or the authors': tools/train.py CONFIG --pretrained CHECKPOINT
pretrained_by = "classifier_flatten_swin_t_300e_imagenet.py"

model = dict(
    backbone=dict(
        type="mmlisa.FLattenSwin",
        arch="tiny",
        drop_path_rate=0.2,
    ),
    neck=dict(in_channels=[96, 192, 384, 768]),
)
