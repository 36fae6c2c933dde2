# PicoDet, Castling-ESNet-ViT-S, 320 x 320: the paper has AP 28.1 with 3.25 M parameters and 0.62 G MACs (Castling-ViT,
# Table 3). The paper's MACs include the auxiliary branch.
_base_ = "./_base_/picodet_esnet_vit_s_320.py"

# The paper starts from ImageNet weights: tools/train.py CONFIG --pretrained CHECKPOINT
pretrained_by = "classifier_castling_esnet_s_1000e_imagenet.py"

model = dict(
    backbone=dict(
        attention=dict(aux=True, epsilon=0.02),
    ),
)
custom_hooks = [*_base_.custom_hooks, dict(type="mmlisa.CastlingHook")]
