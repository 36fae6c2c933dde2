# The isotropic network with inception mixers and 228 channels, nearest to the printed parameters: LiSA, Table 3a.
_base_ = "../imagenet/classifier_lisanet_i_150e_imagenet.py"

model = dict(
    backbone=dict(arch=dict(_delete_=True, base="isotropic", channels=(228,)), attention=dict(type="InceptionMixer")),
    head=dict(in_channels=228),
)
