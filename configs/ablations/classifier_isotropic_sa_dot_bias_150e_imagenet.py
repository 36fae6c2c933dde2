# Structure-aware attention of LiSA's first version, Eq. (5) with the bias B^a: its paper has 74.2% top-1 (LiSA first
# version, Table 3b). Query, key, value and output are projected without biases: inferred from the printed parameters.
_base_ = "../imagenet/classifier_lisanet_i_150e_imagenet.py"

model = dict(
    backbone=dict(
        attention=dict(type="StructureAwareAttention", qkv_bias=False, proj_bias=False, form="dot", encoding_bias=True)
    )
)
