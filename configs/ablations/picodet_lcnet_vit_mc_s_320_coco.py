# LCNet-ViT with mean-centred queries and keys ("MC"), S-320: the paper has AP 22.8 (Castling-ViT, Table 5).
_base_ = "../_base_/picodet_lcnet_vit_s_320.py"

model = dict(backbone=dict(attention=dict(_delete_=True, type="MeanCenteredAttention", pooled=True, qkv_bias=False)))
