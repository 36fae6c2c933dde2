# FLatten-Swin-T with the focusing factor 32: FLatten, Table 5.
_base_ = "../imagenet/classifier_flatten_swin_t_300e_imagenet.py"

model = dict(backbone=dict(attention=dict(focusing_factor=32)))
