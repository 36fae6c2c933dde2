# LiSANet-H-T "w/ conv" of the first version, ImageNet-1K, 300 epochs: its paper has 80.9% top-1 (LiSA first version,
# Table 8b). "The depthwise convolution scheme of" UniFormer is read as its position embedding, a depthwise 3x3 in each
# block: this gives the printed 12.7 M.
_base_ = "./classifier_lisanet_v1_tiny_300e_imagenet.py"

model = dict(backbone=dict(arch=dict(_delete_=True, base="v1-tiny", position="conv")))
