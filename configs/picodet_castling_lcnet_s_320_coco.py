# PicoDet, Castling-LCNet-ViT-S, 320 x 320, from scratch: the paper has AP 27.0, 2.14 M, 0.62 G MACs (Castling-ViT, Table 6).
_base_ = "./_base_/picodet_lcnet_vit_s_320.py"

model = dict(backbone=dict(attention=dict(aux=True, epsilon=0.02)))
custom_hooks = [*_base_.custom_hooks, dict(type="mmlisa.CastlingHook")]
