# Plain ViT-T/8, the interaction alone, quadratic in the tokens: the paper has 74.2% top-1 (iViT, Table 8). That its host is
# ViT-T/8 is a guess.
_base_ = "../imagenet/classifier_vit_t8_interactive_300e_imagenet.py"

model = dict(backbone=dict(attention=dict(landmarks=None)))
