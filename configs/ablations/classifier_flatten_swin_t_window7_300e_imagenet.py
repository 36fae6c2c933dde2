# FLatten-Swin-T with windows of 7 x 7 in its linear blocks: FLatten, Table 6.
_base_ = "../imagenet/classifier_flatten_swin_t_300e_imagenet.py"

model = dict(backbone=dict(attention=dict(window=7, shift=True)))
