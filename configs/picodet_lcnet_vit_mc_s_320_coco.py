# LCNet-ViT with mean-centred queries and keys ("MC"): the paper has AP 22.8 (Castling-ViT, Table 5).
_base_ = "./picodet_castling_lcnet_s_320_coco.py"

model = dict(backbone=dict(attention=dict(_delete_=True, type="MeanCenteredAttention", pooled=True, qkv_bias=False)))
# No auxiliary branch, nothing to castle.
custom_hooks = _base_.custom_hooks[:-1]
