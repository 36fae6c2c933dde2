# LeViT-256 with linear-angular attention, DConv and the convolutions of its MLPs ("+ Lin. & DWConv"), distilled: the paper has
# 82.4% top-1 (Castling-ViT, App. B). The third row, "& SparseAttn", is the base.
_base_ = "../imagenet/classifier_castling_levit_256_distilled_1000e_imagenet.py"

model = dict(backbone=dict(attention=dict(aux=False)))
custom_hooks = [hook for hook in _base_.custom_hooks if hook.type != "mmlisa.CastlingHook"]
