# Structure-aware attention, Eq. (11): LiSA, Table 3b. Query, key, value and output are projected without biases:
# inferred from the printed parameters.
_base_ = "../imagenet/classifier_lisanet_i_150e_imagenet.py"

model = dict(
    backbone=dict(attention=dict(type="StructureAwareAttention", qkv_bias=False, proj_bias=False, form="hadamard"))
)
