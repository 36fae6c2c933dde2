# Mask2Former, Castling-ViT-Base, 160k: the paper has mIoU 34.67, and 48.44 from MAE's weights (Castling-ViT, Table 4).
_base_ = "./_base_/mask2former_vit_b.py"

model = dict(backbone=dict(arch="base", attention=dict(conv_size=9)))
custom_hooks = [*_base_.custom_hooks, dict(type="mmlisa.CastlingHook", interval=500)]
