# LiSANet-I, ImageNet-1K, 150 epochs: the paper has 74.9% top-1 (LiSA journal version, Table 3). No stochastic depth,
# a linear head.
_base_ = "./classifier_hylisanet_s_300e_imagenet.py"

max_epochs = 150
train_cfg = dict(max_epochs=max_epochs)
param_scheduler = [_base_.param_scheduler[0], dict(_base_.param_scheduler[1], end=max_epochs)]
model = dict(
    backbone=dict(arch="isotropic", drop_path_rate=0.0),
    head=dict(type="LinearClsHead", in_channels=192),
)
