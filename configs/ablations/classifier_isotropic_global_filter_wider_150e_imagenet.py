# The same with 240 channels, which come nearest to the printed parameters: LiSA, Table 3a.
_base_ = "../imagenet/classifier_lisanet_i_150e_imagenet.py"

model = dict(
    backbone=dict(arch=dict(_delete_=True, base="isotropic", channels=(240,)), attention=dict(type="GlobalFilter")),
    head=dict(in_channels=240),
)
