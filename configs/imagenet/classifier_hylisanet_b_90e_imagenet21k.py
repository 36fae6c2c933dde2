# HyLiSANet-B, pretrained on ImageNet-21K (LiSA's appendix A.2).
_base_ = "./classifier_hylisanet_s_90e_imagenet21k.py"

model = dict(backbone=dict(arch="hybrid-base", drop_path_rate=0.2), head=dict(in_channels=576))
