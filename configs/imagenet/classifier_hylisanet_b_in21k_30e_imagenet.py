# HyLiSANet-B, from ImageNet-21K to ImageNet-1K: the paper has 86.2% top-1 (LiSA journal version, Table 6).
_base_ = "./classifier_hylisanet_s_in21k_30e_imagenet.py"

# From ImageNet-21K weights: tools/train.py CONFIG --pretrained CHECKPOINT
pretrained_by = "classifier_hylisanet_b_90e_imagenet21k.py"

model = dict(backbone=dict(arch="hybrid-base", drop_path_rate=0.2), head=dict(in_channels=576))
