# LiSANet-I-T of the first version, ImageNet-1K, 150 epochs: its paper has 74.9% top-1 (LiSA first version, Table 3a).
# With the bias B^a, without a norm behind the operator.
_base_ = "./classifier_lisanet_i_150e_imagenet.py"

model = dict(backbone=dict(arch="v1-isotropic"))
