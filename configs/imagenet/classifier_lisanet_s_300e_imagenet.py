# LiSANet-S, ImageNet-1K, 300 epochs: the paper has 83.4% top-1 (LiSA journal version, Table 5). The head has a hidden
# layer of 4C, Table 11 a linear one; only so do the parameters agree.
_base_ = "./classifier_hylisanet_s_300e_imagenet.py"

model = dict(backbone=dict(arch="small"))
