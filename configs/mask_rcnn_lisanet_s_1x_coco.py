# Mask R-CNN, LiSANet-S, 1x: the paper has box AP 47.2, mask AP 42.2 (LiSA journal version, Table 9).
_base_ = "./mask_rcnn_hylisanet_s_1x_coco.py"

model = dict(backbone=dict(arch="small"))
