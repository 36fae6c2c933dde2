# The isotropic network with depthwise convolutions of 7 x 7: LiSA, Table 3a.
_base_ = "../imagenet/classifier_lisanet_i_150e_imagenet.py"

model = dict(backbone=dict(attention=dict(type="DepthwiseConv", kernel_size=7)))
