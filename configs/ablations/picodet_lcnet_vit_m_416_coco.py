# LCNet-ViT with softmax attention, not castled, M-416: the paper has AP 34.9 (Castling-ViT, Tables 5 and 7).
_base_ = "../_base_/picodet_lcnet_vit_m_416.py"

model = dict(backbone=dict(attention=dict(_delete_=True, type="PooledSoftmaxAttention", qkv_bias=False)))
