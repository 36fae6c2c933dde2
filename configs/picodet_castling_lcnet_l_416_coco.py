# Castling-LCNet-ViT-L: the paper has AP 37.3 with 13.10 M parameters and 5.31 G MACs (Castling-ViT, Table 3). One block
# per stage, fitted to the counts; the text replaces "all layers in last two stages" and has "DWConv in the middle of
# MLP layers", here on the values.
_base_ = "./_base_/picodet_lcnet_vit_m_416.py"

# The paper starts from ImageNet weights: tools/train.py CONFIG --pretrained CHECKPOINT
pretrained_by = "classifier_castling_lcnet_l_1000e_imagenet.py"

model = dict(
    backbone=dict(
        arch="large",
        attention=dict(aux=True, epsilon=0.02),
    ),
    neck=dict(in_channels=[256, 512, 1024], out_channels=160),
    bbox_head=dict(in_channels=160, stacked_convs=4),
)
custom_hooks = [*_base_.custom_hooks, dict(type="mmlisa.CastlingHook")]
