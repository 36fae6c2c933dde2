# LCNet-ViT with ReLU for the softmax ("ReLU-S"), S-320: the paper has AP 23.9 (Castling-ViT, Table 5). Here it divides
# by N, in the paper it does not.
_base_ = "../_base_/picodet_lcnet_vit_s_320.py"

model = dict(backbone=dict(attention=dict(_delete_=True, type="ReLUSoftmaxAttention", pooled=True, qkv_bias=False)))
