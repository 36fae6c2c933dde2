# Plain ViT-S/16 with interactive attention, ImageNet-1K, 300 epochs: the paper has 81.1% top-1 (iViT, Tables 2 and 9).
# 64 landmarks and no class token, which are fitted to the FLOPs; the text has 49 landmarks, for iViT.
_base_ = "./classifier_vit_t16_interactive_300e_imagenet.py"

model = dict(backbone=dict(arch="small-16"), head=dict(in_channels=384))
