# Mask R-CNN, MILA-S, 1x: the paper has box AP 49.2, mask AP 44.2.
_base_ = "./mask_rcnn_mila_t_1x_coco.py"

# The paper starts from ImageNet weights, this classifier's or the authors': tools/train.py CONFIG --pretrained CHECKPOINT
pretrained_by = "classifier_mila_s_300e_imagenet.py"

model = dict(backbone=dict(arch="small"))
