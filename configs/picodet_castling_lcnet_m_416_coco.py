# Castling-LCNet-ViT-M, from scratch: the paper has AP 35.3 with 7.53 M parameters and 3.15 G MACs (Castling-ViT, Table
# 7). Its Table 5 has AP 35.5. One block per stage, fitted to the counts; the text replaces "all layers in last two
# stages" and has "DWConv in the middle of MLP layers", here on the values.
_base_ = "./_base_/picodet_lcnet_vit_m_416.py"

model = dict(backbone=dict(attention=dict(aux=True, epsilon=0.02)))
custom_hooks = [*_base_.custom_hooks, dict(type="mmlisa.CastlingHook")]
