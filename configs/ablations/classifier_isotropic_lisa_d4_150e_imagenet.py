# LiSANet-I with 4 structural patterns: LiSA, Table 3c. 1.108 G FLOPs, 1.13 in the paper.
_base_ = "../imagenet/classifier_lisanet_i_150e_imagenet.py"

model = dict(backbone=dict(attention=dict(type="LiSA", num_patterns=4)))
