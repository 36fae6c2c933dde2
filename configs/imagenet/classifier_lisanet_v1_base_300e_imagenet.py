# LiSANet-H-B of the first version, ImageNet-1K, 300 epochs: its paper has 84.4% top-1 (LiSA first version, Table 4). A
# linear head.
_base_ = "./classifier_hylisanet_s_300e_imagenet.py"

model = dict(backbone=dict(arch="v1-base", drop_path_rate=0.4), head=dict(type="LinearClsHead", in_channels=768))
