# UperNet, HyLiSANet-B, 160k: not in the paper; Swin-B's recipe.
_base_ = "./upernet_hylisanet_s_160k_ade20k.py"

pretrained_by = "classifier_hylisanet_b_300e_imagenet.py"

model = dict(
    backbone=dict(arch="hybrid-base", drop_path_rate=0.4),
    decode_head=dict(in_channels=[96, 192, 384, 576]),
    auxiliary_head=dict(in_channels=384),
)
