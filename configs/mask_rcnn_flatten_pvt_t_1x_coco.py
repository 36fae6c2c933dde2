# Mask R-CNN, FLatten-PVT-T, 1x: the paper has box AP 38.2, mask AP 37.0 (FLatten, Table 2a). PVT's recipe: AdamW 2e-4,
# decay 1e-4 of every parameter, one scale. 213 G FLOPs, 244 G in the paper, which is unexplained.
_base_ = [
    "./_base_/models/mask_rcnn.py",
    "./_base_/datasets/coco_instance.py",
    "./_base_/schedules/swin_1x.py",
    "./_base_/runtime_mmdet.py",
]

# The paper starts from ImageNet weights, this classifier's or the authors': tools/train.py CONFIG --pretrained CHECKPOINT
pretrained_by = "classifier_flatten_pvt_t_300e_imagenet.py"

model = dict(
    backbone=dict(
        type="mmlisa.FLattenPVT",
        arch="tiny",
        drop_path_rate=0.1,
    ),
    neck=dict(in_channels=[64, 128, 320, 512]),
)
optim_wrapper = dict(optimizer=dict(lr=2e-4, weight_decay=1e-4), paramwise_cfg=None)
