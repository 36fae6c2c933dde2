# The isotropic network with self-attention, a relative position embedding and 204 channels, nearest to the printed
# parameters: LiSA, Table 3a.
_base_ = "../imagenet/classifier_lisanet_i_150e_imagenet.py"

model = dict(
    backbone=dict(
        arch=dict(_delete_=True, base="isotropic", channels=(204,)),
        attention=dict(type="SoftmaxAttention", rpe="shared"),
    ),
    head=dict(in_channels=204),
)
