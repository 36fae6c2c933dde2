# LiSANet-H-S of the first version, ImageNet-1K, 300 epochs: its paper has 82.5% top-1 (LiSA first version, Table 4). A
# linear head. The text has overlapping patch embeddings; only those without overlap agree with the counts.
_base_ = "./classifier_hylisanet_s_300e_imagenet.py"

model = dict(backbone=dict(arch="v1-small", drop_path_rate=0.1), head=dict(type="LinearClsHead", in_channels=512))
