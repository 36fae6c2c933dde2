# Mask R-CNN, H-ViT³-B, 1x: the paper has box AP 50.0, mask AP 44.6.
_base_ = "./mask_rcnn_h_vit3_t_1x_coco.py"

# The paper starts from ImageNet weights, this classifier's or the authors': tools/train.py CONFIG --pretrained CHECKPOINT
pretrained_by = "classifier_h_vit3_b_300e_imagenet.py"

model = dict(backbone=dict(arch="base"), neck=dict(in_channels=[96, 192, 448, 640]))
