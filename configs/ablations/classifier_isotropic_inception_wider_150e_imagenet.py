# The isotropic network with inception mixers and 228 channels, nearest to the printed parameters: LiSA, Table 3a. The
# split of the channels is unknown: here 6.68 M parameters and 1.35 G FLOPs, 6.36 M and 1.28 G in the paper.
_base_ = "../imagenet/classifier_lisanet_i_150e_imagenet.py"

model = dict(
    backbone=dict(arch=dict(_delete_=True, base="isotropic", channels=(228,)), attention=dict(type="InceptionMixer")),
    head=dict(in_channels=228),
)
