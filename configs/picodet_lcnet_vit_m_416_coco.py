# LCNet-ViT with softmax attention, not castled: the paper has AP 34.9 (Castling-ViT, Tables 5 and 7).
_base_ = "./picodet_castling_lcnet_m_416_coco.py"

model = dict(backbone=dict(attention=dict(_delete_=True, type="PooledSoftmaxAttention", qkv_bias=False)))
# No auxiliary branch, nothing to castle.
custom_hooks = _base_.custom_hooks[:-1]
