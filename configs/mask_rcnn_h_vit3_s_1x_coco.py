# Mask R-CNN, H-ViT³-S, 1x: the paper has box AP 49.1, mask AP 44.1.
_base_ = "./mask_rcnn_h_vit3_t_1x_coco.py"

# The paper starts from ImageNet weights, this classifier's or the authors': tools/train.py CONFIG --pretrained CHECKPOINT
pretrained_by = "classifier_h_vit3_s_300e_imagenet.py"

model = dict(backbone=dict(arch="small"))
