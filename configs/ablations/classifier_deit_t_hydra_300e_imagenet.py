# DeiT-T with Hydra attention: FLatten, Table 3a.
_base_ = "../imagenet/classifier_flatten_deit_t_300e_imagenet.py"

model = dict(backbone=dict(attention=dict(type="HydraAttention")))
