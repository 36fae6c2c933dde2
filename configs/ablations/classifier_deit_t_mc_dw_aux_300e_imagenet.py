# DeiT-T with mean-centred linear attention, DConv and the auxiliary branch ("+ Lin. & DWConv & SparseAttn"), 300 epochs: the
# paper has 72.4% top-1 (Castling-ViT, App. B). It names no other part of the recipe; FLatten-DeiT-T's here.
_base_ = "../imagenet/classifier_flatten_deit_t_300e_imagenet.py"

model = dict(backbone=dict(attention=dict(type="MeanCenteredAttention", conv_size=9, aux=True)))
custom_hooks = [*_base_.custom_hooks, dict(type="mmlisa.CastlingHook", interval=500)]
