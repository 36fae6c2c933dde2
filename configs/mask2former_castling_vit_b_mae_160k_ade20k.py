# Mask2Former, Castling-ViT-Base from MAE's weights, 160k: the paper has mIoU 48.44 (Castling-ViT, Table 4). The weights are those
# of MAE's ViT-Base, whose softmax attention they were trained with.
_base_ = "./mask2former_castling_vit_b_160k_ade20k.py"

model = dict(backbone=dict(init_cfg=dict(type="mmlisa.PublishedWeights", source="timm:vit_base_patch16_224.mae")))
