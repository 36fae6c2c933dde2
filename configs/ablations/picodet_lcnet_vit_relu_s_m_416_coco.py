# LCNet-ViT with ReLU for the softmax ("ReLU-S"), M-416: the paper has AP 30.9 (Castling-ViT, Table 5). Here it divides
# by N, in the paper it does not.
_base_ = "../_base_/picodet_lcnet_vit_m_416.py"

model = dict(backbone=dict(attention=dict(_delete_=True, type="ReLUSoftmaxAttention", pooled=True, qkv_bias=False)))
