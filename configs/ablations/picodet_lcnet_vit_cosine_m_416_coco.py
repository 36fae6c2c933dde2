# LCNet-ViT with the cosine kernel, M-416: the paper has AP 32.9 (Castling-ViT, Table 5).
_base_ = "../_base_/picodet_lcnet_vit_m_416.py"

model = dict(backbone=dict(attention=dict(_delete_=True, type="CosineAttention", pooled=True, qkv_bias=False)))
