# Mask2Former, ViT-Base, 160k, the baseline: the paper has mIoU 34.54, and 47.92 from MAE's weights (Castling-ViT, Table 4).
_base_ = "../_base_/mask2former_vit_b.py"

model = dict(backbone=dict(arch=dict(base="base", mlp_conv=None), attention=dict(type="SoftmaxAttention")))
