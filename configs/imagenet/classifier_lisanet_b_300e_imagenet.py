# LiSANet-B, ImageNet-1K, 300 epochs: the paper has 84.6% top-1 (LiSA journal version, Table 5).
_base_ = "./classifier_hylisanet_b_300e_imagenet.py"

model = dict(backbone=dict(arch="base"))
