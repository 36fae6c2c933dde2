# HyLiSANet-B, Kinetics-400, 110 epochs from ImageNet-1K weights: the paper has 82.5% top-1 (LiSA journal version, Table
# 8). 415.9 G FLOPs, 428 G in the paper.
_base_ = "./classifier_hylisanet_s_110e_kinetics400.py"

model = dict(backbone=dict(arch="hybrid-base", drop_path_rate=0.3), head=dict(in_channels=576))
pretrained_by = "classifier_hylisanet_b_300e_imagenet.py"
load_from = "work_dirs/hylisanet_b_inflated.pth"
