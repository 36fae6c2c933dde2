# LCNet-ViT with softmax attention, not castled, S-320: the paper has AP 25.9 (Castling-ViT, Tables 5 and 6).
_base_ = "../_base_/picodet_lcnet_vit_s_320.py"

model = dict(backbone=dict(attention=dict(_delete_=True, type="PooledSoftmaxAttention", qkv_bias=False)))
