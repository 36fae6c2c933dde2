# Mask2Former, Castling-ViT-Base, 160k: the paper has mIoU 34.67 (Castling-ViT, Table 4), from random weights. The
# decoder, which the paper does not describe, is Mask2Former's: 114 M parameters, 118 M in the paper. The backbone has
# 140 G MACs, 147 G in the paper.
_base_ = "./_base_/mask2former_vit_b.py"

model = dict(backbone=dict(arch="base", attention=dict(conv_size=9)))
custom_hooks = [*_base_.custom_hooks, dict(type="mmlisa.CastlingHook", interval=500)]
