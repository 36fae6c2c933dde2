# PicoDet, Castling-LCNet-ViT-S, 416 x 416, from scratch: the paper has AP 30.4 (Castling-ViT, Table 5).
_base_ = "./_base_/picodet_lcnet_vit_s_416.py"

model = dict(backbone=dict(attention=dict(aux=True, epsilon=0.02)))
custom_hooks = [*_base_.custom_hooks, dict(type="mmlisa.CastlingHook")]
