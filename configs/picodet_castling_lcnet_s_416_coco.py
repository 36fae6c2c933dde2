# PicoDet, Castling-LCNet-ViT-S, 416 x 416, from scratch: the paper has AP 30.4 (Castling-ViT, Table 5). One block per
# stage, fitted to the counts; the text replaces "all layers in last two stages" and has "DWConv in the middle of MLP
# layers", here on the values.
_base_ = "./_base_/picodet_lcnet_vit_s_416.py"

model = dict(backbone=dict(attention=dict(aux=True, epsilon=0.02)))
custom_hooks = [*_base_.custom_hooks, dict(type="mmlisa.CastlingHook")]
