# LCNet-ViT with ReLU for the exponential ("ReLU-E"), S-416: the paper has AP 30.2 (Castling-ViT, Table 5).
_base_ = "../_base_/picodet_lcnet_vit_s_416.py"

model = dict(backbone=dict(attention=dict(_delete_=True, type="ReLUExpAttention", pooled=True, qkv_bias=False)))
