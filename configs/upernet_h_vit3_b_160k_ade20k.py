# UperNet, H-ViT³-B, 160k: the paper has mIoU 51.7.
_base_ = "./upernet_h_vit3_t_160k_ade20k.py"

pretrained_by = "classifier_h_vit3_b_300e_imagenet.py"

model = dict(
    backbone=dict(arch="base", drop_path_rate=0.5),
    decode_head=dict(in_channels=[96, 192, 448, 640]),
    auxiliary_head=dict(in_channels=448),
)
