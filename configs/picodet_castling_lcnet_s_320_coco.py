# PicoDet, Castling-LCNet-ViT-S, 320 x 320, from scratch: the paper has AP 27.0, 2.14 M, 0.62 G MACs (Castling-ViT,
# Table 6). One block per stage, fitted to the counts; the text replaces "all layers in last two stages" and has "DWConv
# in the middle of MLP layers", here on the values.
_base_ = "./_base_/picodet_lcnet_vit_s_320.py"

model = dict(backbone=dict(attention=dict(aux=True, epsilon=0.02)))
custom_hooks = [*_base_.custom_hooks, dict(type="mmlisa.CastlingHook")]
