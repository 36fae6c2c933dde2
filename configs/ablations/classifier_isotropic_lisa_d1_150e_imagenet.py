# LiSANet-I with 1 structural pattern: LiSA, Table 3c. 1.084 G FLOPs, 1.11 in the paper.
_base_ = "../imagenet/classifier_lisanet_i_150e_imagenet.py"

model = dict(backbone=dict(attention=dict(type="LiSA", num_patterns=1)))
