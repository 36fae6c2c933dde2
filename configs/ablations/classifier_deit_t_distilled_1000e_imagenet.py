# DeiT-T with its own softmax attention under Castling-ViT's recipe, distilled. "Our adopted training recipe leads to
# 0.2% to 1.6% top-1 accuracy improvements" over DeiT's own (Castling-ViT, App. B), which has 74.5.
_base_ = "../imagenet/classifier_castling_deit_t_distilled_1000e_imagenet.py"

model = dict(
    backbone=dict(arch=dict(_delete_=True, base="tiny", mlp_conv=None), attention=dict(type="SoftmaxAttention"))
)
custom_hooks = [hook for hook in _base_.custom_hooks if hook.type != "mmlisa.CastlingHook"]
