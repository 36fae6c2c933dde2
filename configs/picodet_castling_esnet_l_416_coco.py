# Castling-ESNet-ViT-L: the paper has AP 35.0 with 9.32 M parameters and 3.03 G MACs (Castling-ViT, Table 3). The
# paper's MACs include the auxiliary branch.
_base_ = "./_base_/picodet_esnet_vit_s_416.py"

# The paper starts from ImageNet weights: tools/train.py CONFIG --pretrained CHECKPOINT
pretrained_by = "classifier_castling_esnet_l_1000e_imagenet.py"

model = dict(
    backbone=dict(
        arch="large",
        attention=dict(aux=True, epsilon=0.02),
    ),
    neck=dict(in_channels=[160, 320, 640], out_channels=160),
    bbox_head=dict(in_channels=160, stacked_convs=4),
)
custom_hooks = [*_base_.custom_hooks, dict(type="mmlisa.CastlingHook")]
