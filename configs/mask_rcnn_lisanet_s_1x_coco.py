# Mask R-CNN, LiSANet-S, 1x: the paper has box AP 47.2, mask AP 42.2 (LiSA journal version, Table 9). One scale in
# training, a short side of 800; the rest is Swin's. The kernels keep their taps at this resolution, so that attention reaches
# 7 tokens in stage 3 (docs/lisa.md).
_base_ = "./mask_rcnn_hylisanet_s_1x_coco.py"

# The paper starts from ImageNet weights: tools/train.py CONFIG --pretrained CHECKPOINT
pretrained_by = "classifier_lisanet_s_300e_imagenet.py"

model = dict(backbone=dict(arch="small"))
