# Mask2Former, ViT-Base from MAE's weights, 160k, the baseline: the paper has mIoU 47.92 (Castling-ViT, Table 4).
_base_ = "./mask2former_vit_b_160k_ade20k.py"

model = dict(backbone=dict(init_cfg=dict(type="mmlisa.PublishedWeights", source="timm:vit_base_patch16_224.mae")))
