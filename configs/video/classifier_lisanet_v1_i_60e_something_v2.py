# LiSANet-I-T of the first version, Something-Something V2, 60 epochs from scratch: its paper has 38.1% top-1 (LiSA
# first version, Table 6).
_base_ = "./classifier_lisanet_i_60e_something_v2.py"

model = dict(backbone=dict(arch=dict(base="v1-isotropic")))
