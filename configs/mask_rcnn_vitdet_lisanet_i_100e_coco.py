# Mask R-CNN as ViTDet, LiSANet-I, 100 epochs. Ours: ViTDet's recipe with another backbone.
_base_ = "./_base_/vitdet.py"

pretrained_by = "classifier_lisanet_i_150e_imagenet.py"

model = dict(
    backbone=dict(
        type="mmlisa.LiSANet",
        arch="isotropic",
        image_size=1024,
        drop_path_rate=0.1,
    ),
    neck=dict(in_channels=192),
)
optim_wrapper = dict(paramwise_cfg=dict(layer_decay=0.7))
