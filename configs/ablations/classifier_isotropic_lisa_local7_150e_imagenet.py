# LiSANet-I with local kernels of 7 x 7: LiSA, Table 3d.
_base_ = "../imagenet/classifier_lisanet_i_150e_imagenet.py"

model = dict(backbone=dict(attention=dict(type="LiSA", num_patterns=16, kernel_size=7, padding="zeros")))
