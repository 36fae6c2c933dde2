# Castling-ESNet-ViT-M: the paper has AP 34.0 with 6.01 M parameters and 2.00 G MACs (Castling-ViT, Table 3).
_base_ = "./_base_/picodet_esnet_vit_s_416.py"

model = dict(
    backbone=dict(
        arch="medium",
        attention=dict(aux=True, epsilon=0.02),
        # The paper starts from an ImageNet classifier: classifier_castling_esnet_m_1000e_imagenet.py makes it.
        # init_cfg=dict(
        #     type="Pretrained",
        #     checkpoint="work_dirs/classifier_castling_esnet_m_1000e_imagenet/epoch_1000.pth",
        #     prefix="backbone.",
        # ),
    ),
    neck=dict(in_channels=[128, 256, 512], out_channels=128),
    bbox_head=dict(in_channels=128, stacked_convs=4),
)
custom_hooks = [*_base_.custom_hooks, dict(type="mmlisa.CastlingHook")]
