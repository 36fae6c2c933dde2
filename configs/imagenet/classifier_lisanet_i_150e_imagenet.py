# LiSANet-I, ImageNet-1K, 150 epochs: the paper has 74.9% top-1 (LiSA journal version, Table 3). No stochastic depth, a
# linear head. The printed accuracy is that of the first version, whose operator has a bias and no norm:
# classifier_lisanet_v1_i_150e_imagenet.py.
_base_ = "./classifier_hylisanet_s_300e_imagenet.py"

train_cfg = dict(max_epochs=150)
param_scheduler = [
    dict(type="LinearLR", start_factor=1e-3, by_epoch=True, begin=0, end=20, convert_to_iter_based=True),
    dict(type="CosineAnnealingLR", eta_min=1e-5, by_epoch=True, begin=0, end=150, convert_to_iter_based=True),
]
model = dict(
    backbone=dict(arch="isotropic", drop_path_rate=0.0),
    head=dict(type="LinearClsHead", in_channels=192),
)
