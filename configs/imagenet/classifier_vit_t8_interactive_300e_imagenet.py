# Plain ViT-T/8 with interactive attention, ImageNet-1K, 300 epochs: the paper has 79.1% top-1 (iViT, Tables 3 and 9).
# 64 landmarks and no class token, which are fitted to the FLOPs; the text has 49 landmarks, for iViT.
_base_ = "./classifier_vit_t16_interactive_300e_imagenet.py"

model = dict(backbone=dict(arch="tiny-8"))
