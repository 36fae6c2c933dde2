# LCNet-ViT with softmax attention, not castled, S-416: the paper has AP 29.8 (Castling-ViT, Table 5).
_base_ = "../_base_/picodet_lcnet_vit_s_416.py"

model = dict(backbone=dict(attention=dict(_delete_=True, type="PooledSoftmaxAttention", qkv_bias=False)))
