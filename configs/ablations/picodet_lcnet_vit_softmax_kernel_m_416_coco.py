# LCNet-ViT with softmax as a kernel ("Softmax"), M-416: the paper has AP 34.4 (Castling-ViT, Table 5).
_base_ = "../_base_/picodet_lcnet_vit_m_416.py"

model = dict(backbone=dict(attention=dict(_delete_=True, type="EfficientAttention", pooled=True, qkv_bias=False)))
