# UperNet, H-ViT³-T, 160k: the paper has mIoU 48.0. With --amp, as the authors, for this size only.
_base_ = "./_base_/upernet_conv_pyramid.py"

pretrained_by = "classifier_h_vit3_t_300e_imagenet.py"

model = dict(
    backbone=dict(
        type="mmlisa.HViT3",
        arch="tiny",
        drop_path_rate=0.2,
    ),
    decode_head=dict(in_channels=[64, 128, 320, 512]),
    auxiliary_head=dict(in_channels=320),
)
