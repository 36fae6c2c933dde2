# LCNet-ViT with the cosine kernel, S-320: the paper has AP 24.4 (Castling-ViT, Table 5).
_base_ = "../_base_/picodet_lcnet_vit_s_320.py"

model = dict(backbone=dict(attention=dict(_delete_=True, type="CosineAttention", pooled=True, qkv_bias=False)))
