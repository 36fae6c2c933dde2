# LiSANet-B, ImageNet-1K, 300 epochs: the paper has 84.6% top-1 (LiSA journal version, Table 5). Its Table 7 has 84.4%.
# The head has a hidden layer of 4C, Table 11 a linear one; only so do the parameters agree.
# 10.45 G FLOPs, 10.4 in the paper.
_base_ = "./classifier_hylisanet_b_300e_imagenet.py"

model = dict(backbone=dict(arch="base"))
