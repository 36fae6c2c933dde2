# Plain ViT-T/8, the decomposition alone: iViT, Table 8, whose FLOPs leave out the projections. That its host is ViT-T/8
# is a guess.
_base_ = "../imagenet/classifier_vit_t8_interactive_300e_imagenet.py"

model = dict(backbone=dict(attention=dict(mix_before=False, mix_after=False)))
