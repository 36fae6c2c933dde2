# Semantic FPN, LiSANet-S, 80k: the paper has mIoU 49.2 (LiSA journal version, Table 10). The kernels keep their taps at
# this resolution, so that attention reaches 7 tokens in stage 3 (docs/lisa.md).
_base_ = "./semantic_fpn_hylisanet_s_80k_ade20k.py"

pretrained_by = "classifier_lisanet_s_300e_imagenet.py"

model = dict(backbone=dict(arch="small"))
