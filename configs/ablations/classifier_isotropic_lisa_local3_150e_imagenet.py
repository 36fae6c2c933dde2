# LiSANet-I with local kernels of 3 x 3: LiSA, Table 3d.
_base_ = "../imagenet/classifier_lisanet_i_150e_imagenet.py"

model = dict(backbone=dict(attention=dict(type="LiSA", num_patterns=16, kernel_size=3, padding="zeros")))
