# The isotropic network with self-attention and a relative position embedding: LiSA, Table 3a.
_base_ = "../imagenet/classifier_lisanet_i_150e_imagenet.py"

model = dict(backbone=dict(attention=dict(type="SoftmaxAttention", rpe="shared")))
