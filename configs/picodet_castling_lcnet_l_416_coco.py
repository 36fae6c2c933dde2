# Castling-LCNet-ViT-L: the paper has AP 37.3 with 13.10 M parameters and 5.31 G MACs (Castling-ViT, Table 3).
_base_ = "./_base_/picodet_lcnet_vit_m_416.py"

model = dict(
    backbone=dict(
        arch="large",
        attention=dict(aux=True, epsilon=0.02),
        # The paper starts from an ImageNet classifier: classifier_castling_lcnet_l_1000e_imagenet.py makes it.
        # init_cfg=dict(
        #     type="Pretrained",
        #     checkpoint="work_dirs/classifier_castling_lcnet_l_1000e_imagenet/epoch_1000.pth",
        #     prefix="backbone.",
        # ),
    ),
    neck=dict(in_channels=[256, 512, 1024], out_channels=160),
    bbox_head=dict(in_channels=160, stacked_convs=4),
)
custom_hooks = [*_base_.custom_hooks, dict(type="mmlisa.CastlingHook")]
