# LCNet-ViT with softmax as a kernel ("Softmax"), S-416: the paper has AP 29.2 (Castling-ViT, Table 5).
_base_ = "../_base_/picodet_lcnet_vit_s_416.py"

model = dict(backbone=dict(attention=dict(_delete_=True, type="EfficientAttention", pooled=True, qkv_bias=False)))
