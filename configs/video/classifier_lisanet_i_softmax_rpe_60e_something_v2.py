# Self-attention with a relative position embedding in place of LiSA, Something-Something V2: the paper has 24.0%
# top-1 (LiSA journal version, Table 14). Query, key, value and output are projected without biases: inferred from the
# printed parameters.
_base_ = "./classifier_lisanet_i_60e_something_v2.py"

model = dict(backbone=dict(attention=dict(type="SoftmaxAttention", rpe="shared", qkv_bias=False, proj_bias=False)))
