# LCNet-ViT with softmax as a kernel ("Softmax"), S-320: the paper has AP 26.0 (Castling-ViT, Table 5).
_base_ = "../_base_/picodet_lcnet_vit_s_320.py"

model = dict(backbone=dict(attention=dict(_delete_=True, type="EfficientAttention", pooled=True, qkv_bias=False)))
