# LeViT-256 with linear-angular attention alone ("+ Lin."), distilled: the paper has 81.5% top-1 (Castling-ViT, App. B).
_base_ = "../imagenet/classifier_castling_levit_256_distilled_1000e_imagenet.py"

model = dict(
    backbone=dict(arch=dict(_delete_=True, base="256", mlp_conv=None), attention=dict(conv_size=None, aux=False))
)
custom_hooks = [hook for hook in _base_.custom_hooks if hook.type != "mmlisa.CastlingHook"]
