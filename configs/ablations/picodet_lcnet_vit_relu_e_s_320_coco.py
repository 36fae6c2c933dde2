# LCNet-ViT with ReLU for the exponential ("ReLU-E"), S-320: the paper has AP 26.5 (Castling-ViT, Table 5).
_base_ = "../_base_/picodet_lcnet_vit_s_320.py"

model = dict(backbone=dict(attention=dict(_delete_=True, type="ReLUExpAttention", pooled=True, qkv_bias=False)))
