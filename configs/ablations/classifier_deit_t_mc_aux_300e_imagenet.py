# DeiT-T with mean-centred linear attention and the auxiliary branch ("+ Lin. & SparseAttn"), 300 epochs: the paper has 70.2%
# top-1 (Castling-ViT, App. B). It names no other part of the recipe; FLatten-DeiT-T's here.
_base_ = "../imagenet/classifier_flatten_deit_t_300e_imagenet.py"

model = dict(backbone=dict(attention=dict(type="MeanCenteredAttention", aux=True)))
custom_hooks = [*_base_.custom_hooks, dict(type="mmlisa.CastlingHook", interval=500)]
