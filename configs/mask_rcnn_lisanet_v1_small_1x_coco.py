# Mask R-CNN, LiSANet-H-S of the first version, 1x: its paper has box AP 46.1, mask AP 41.6 (Table 5).
_base_ = "./mask_rcnn_hylisanet_s_1x_coco.py"

model = dict(backbone=dict(arch="v1-small"), neck=dict(in_channels=[64, 128, 256, 512]))
