# Castling-ESNet-ViT-M: the paper has AP 34.0 with 6.01 M parameters and 2.00 G MACs (Castling-ViT, Table 3). The
# paper's MACs include the auxiliary branch.
_base_ = "./_base_/picodet_esnet_vit_s_416.py"

# The paper starts from ImageNet weights: tools/train.py CONFIG --pretrained CHECKPOINT
pretrained_by = "classifier_castling_esnet_m_1000e_imagenet.py"

model = dict(
    backbone=dict(
        arch="medium",
        attention=dict(aux=True, epsilon=0.02),
    ),
    neck=dict(in_channels=[128, 256, 512], out_channels=128),
    bbox_head=dict(in_channels=128, stacked_convs=4),
)
custom_hooks = [*_base_.custom_hooks, dict(type="mmlisa.CastlingHook")]
