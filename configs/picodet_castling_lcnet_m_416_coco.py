# Castling-LCNet-ViT-M, from scratch: the paper has AP 35.3 with 7.53 M parameters and 3.15 G MACs (Castling-ViT, Tables 5 and 7).
_base_ = "./_base_/picodet_lcnet_vit_m_416.py"

model = dict(backbone=dict(attention=dict(aux=True, epsilon=0.02)))
custom_hooks = [*_base_.custom_hooks, dict(type="mmlisa.CastlingHook")]
