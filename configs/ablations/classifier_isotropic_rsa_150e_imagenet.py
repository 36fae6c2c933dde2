# The isotropic network with relational self-attention: LiSA, Table 3a. Evaluated in a cheaper order: 4.18 G FLOPs, 5.34
# G in the paper.
_base_ = "../imagenet/classifier_lisanet_i_150e_imagenet.py"

model = dict(backbone=dict(attention=dict(type="RelationalSelfAttention")))
