# Mask R-CNN, iViT-S, 3x: the paper has box AP 49.8, mask AP 44.7 (iViT, Tables 6 and 10).
_base_ = "./mask_rcnn_ivit_t_3x_coco.py"

model = dict(backbone=dict(arch="small", drop_path_rate=0.3))
