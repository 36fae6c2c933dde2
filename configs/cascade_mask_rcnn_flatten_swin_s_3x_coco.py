# Cascade Mask R-CNN, FLatten-Swin-S, 3x: the paper has box AP 52.2, mask AP 45.4 (FLatten, Table 2b).
_base_ = "./cascade_mask_rcnn_flatten_swin_t_3x_coco.py"

pretrained_by = "classifier_flatten_swin_s_300e_imagenet.py"

model = dict(backbone=dict(arch="small"))
