# DeiT-T with vanilla linear attention: FLatten, Table 4.
_base_ = "../imagenet/classifier_flatten_deit_t_300e_imagenet.py"

model = dict(backbone=dict(attention=dict(type="ReLULinearAttention")))
