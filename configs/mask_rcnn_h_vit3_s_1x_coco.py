# Mask R-CNN, H-ViT³-S, 1x: the paper has box AP 49.1, mask AP 44.1.
_base_ = "./mask_rcnn_h_vit3_t_1x_coco.py"

model = dict(backbone=dict(arch="small"))
