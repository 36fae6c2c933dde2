# LCNet-ViT with the cosine kernel: the paper has AP 32.9 (Castling-ViT, Table 5).
_base_ = "./picodet_castling_lcnet_m_416_coco.py"

model = dict(backbone=dict(attention=dict(_delete_=True, type="CosineAttention", pooled=True, qkv_bias=False)))
# No auxiliary branch, nothing to castle.
custom_hooks = _base_.custom_hooks[:-1]
