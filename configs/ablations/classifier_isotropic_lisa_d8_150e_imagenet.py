# LiSANet-I with 8 structural patterns: LiSA, Table 3c. 1.139 G FLOPs, 1.17 in the paper.
_base_ = "../imagenet/classifier_lisanet_i_150e_imagenet.py"

model = dict(backbone=dict(attention=dict(type="LiSA", num_patterns=8)))
