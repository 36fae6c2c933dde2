# UperNet, MILA-B, 160k: the paper has mIoU 51.9.
_base_ = "./_base_/upernet_conv_pyramid.py"

pretrained_by = "classifier_mila_b_300e_imagenet.py"

model = dict(
    backbone=dict(
        type="mmlisa.MILA",
        arch="base",
        drop_path_rate=0.5,
    ),
    decode_head=dict(in_channels=[96, 192, 384, 768]),
    auxiliary_head=dict(in_channels=384),
)
