# FLatten-Swin-T with windows of 14 x 14 in its linear blocks: FLatten, Table 6.
_base_ = "../imagenet/classifier_flatten_swin_t_300e_imagenet.py"

model = dict(backbone=dict(attention=dict(window=14, shift=True)))
