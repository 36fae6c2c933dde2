# Swin-T with Enhanced linear attention in its first two stages: FLatten, Table 3b.
_base_ = "../imagenet/classifier_flatten_swin_t_300e_imagenet.py"

model = dict(backbone=dict(attention=dict(type="EnhancedLinearAttention")))
