# DeiT-T with mean-centred linear attention and DConv ("+ Lin. & DWConv"), 300 epochs: the paper has 71.7% top-1
# (Castling-ViT, App. B). It names no other part of the recipe; FLatten-DeiT-T's here.
_base_ = "../imagenet/classifier_flatten_deit_t_300e_imagenet.py"

model = dict(backbone=dict(attention=dict(type="MeanCenteredAttention", conv_size=9)))
