# The isotropic network with self-attention and a relative position embedding: LiSA, Table 3a. Query, key, value and
# output are projected without biases: inferred from the printed parameters.
_base_ = "../imagenet/classifier_lisanet_i_150e_imagenet.py"

model = dict(backbone=dict(attention=dict(type="SoftmaxAttention", qkv_bias=False, proj_bias=False, rpe="shared")))
