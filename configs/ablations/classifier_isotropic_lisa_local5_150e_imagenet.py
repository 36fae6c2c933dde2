# LiSANet-I with local kernels of 5 x 5: LiSA, Table 3d.
_base_ = "../imagenet/classifier_lisanet_i_150e_imagenet.py"

model = dict(backbone=dict(attention=dict(type="LiSA", num_patterns=16, kernel_size=5, padding="zeros")))
