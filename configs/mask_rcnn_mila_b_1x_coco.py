# Mask R-CNN, MILA-B, 1x: the paper has box AP 50.5, mask AP 45.0.
_base_ = "./mask_rcnn_mila_t_1x_coco.py"

# The paper starts from ImageNet weights, this classifier's or the authors': tools/train.py CONFIG --pretrained CHECKPOINT
pretrained_by = "classifier_mila_b_300e_imagenet.py"

model = dict(backbone=dict(arch="base"), neck=dict(in_channels=[96, 192, 384, 768]))
