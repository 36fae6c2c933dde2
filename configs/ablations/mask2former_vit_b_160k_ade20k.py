# Mask2Former, ViT-Base, 160k, the baseline: the paper has mIoU 34.54 (Castling-ViT, Table 4), from random
# weights.
_base_ = "../_base_/mask2former_vit_b.py"

model = dict(backbone=dict(arch=dict(base="base", mlp_conv=None), attention=dict(type="SoftmaxAttention")))
