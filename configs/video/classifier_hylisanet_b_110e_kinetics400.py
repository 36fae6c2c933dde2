# HyLiSANet-B, Kinetics-400, 110 epochs from ImageNet-1K weights: the paper has 82.5% top-1 (LiSA journal version, Table
# 8). 412.8 G FLOPs, 428 G in the paper. The weights to start from are made of the image classifier's:
#   mmlisa convert IMAGE.pth work_dirs/hylisanet_b_inflated.pth \
#       --inflate configs/video/classifier_hylisanet_b_110e_kinetics400.py
_base_ = "./classifier_hylisanet_s_110e_kinetics400.py"

model = dict(backbone=dict(arch="hybrid-base", drop_path_rate=0.3), head=dict(in_channels=576))
pretrained_by = "classifier_hylisanet_b_300e_imagenet.py"
load_from = "work_dirs/hylisanet_b_inflated.pth"
