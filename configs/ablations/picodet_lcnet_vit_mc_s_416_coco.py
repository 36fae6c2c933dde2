# LCNet-ViT with mean-centred queries and keys ("MC"), S-416: the paper has AP 26.3 (Castling-ViT, Table 5).
_base_ = "../_base_/picodet_lcnet_vit_s_416.py"

model = dict(backbone=dict(attention=dict(_delete_=True, type="MeanCenteredAttention", pooled=True, qkv_bias=False)))
