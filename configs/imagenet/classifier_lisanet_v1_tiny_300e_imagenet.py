# LiSANet-H-T of the first version, ImageNet-1K, 300 epochs: its paper has 80.4% top-1 (LiSA first version, Table 8b). A
# linear head. The text has overlapping patch embeddings; only those without overlap agree with the counts.
_base_ = "./classifier_hylisanet_s_300e_imagenet.py"

model = dict(backbone=dict(arch="v1-tiny", drop_path_rate=0.1), head=dict(type="LinearClsHead", in_channels=512))
