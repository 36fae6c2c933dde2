# Mask R-CNN, MILA-T, 1x: the paper has box AP 46.8, mask AP 42.1.
_base_ = "./_base_/mask_rcnn_conv_pyramid.py"

# The paper starts from ImageNet weights, this classifier's or the authors': tools/train.py CONFIG --pretrained CHECKPOINT
pretrained_by = "classifier_mila_t_300e_imagenet.py"

model = dict(
    backbone=dict(
        type="mmlisa.MILA",
        arch="tiny",
        drop_path_rate=0.1,
    ),
    neck=dict(in_channels=[64, 128, 256, 512]),
)
