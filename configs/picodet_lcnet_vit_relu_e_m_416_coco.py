# LCNet-ViT with ReLU for the exponential ("ReLU-E"): the paper has AP 34.3 (Castling-ViT, Table 5).
_base_ = "./picodet_castling_lcnet_m_416_coco.py"

model = dict(backbone=dict(attention=dict(_delete_=True, type="ReLUExpAttention", pooled=True, qkv_bias=False)))
# No auxiliary branch, nothing to castle.
custom_hooks = _base_.custom_hooks[:-1]
