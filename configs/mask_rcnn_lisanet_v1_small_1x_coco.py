# Mask R-CNN, LiSANet-H-S of the first version, 1x: its paper has box AP 46.1, mask AP 41.6 (LiSA first version, Table
# 5). The kernels keep their taps at this resolution, so that attention reaches 7 tokens in stage 3 (docs/lisa.md).
_base_ = "./mask_rcnn_hylisanet_s_1x_coco.py"

# The paper starts from ImageNet weights: tools/train.py CONFIG --pretrained CHECKPOINT
pretrained_by = "classifier_lisanet_v1_small_300e_imagenet.py"

model = dict(backbone=dict(arch="v1-small"), neck=dict(in_channels=[64, 128, 256, 512]))
