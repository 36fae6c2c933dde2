# DeiT-T with the focused function alone, without the depthwise convolution: FLatten, Table 4.
_base_ = "../imagenet/classifier_flatten_deit_t_300e_imagenet.py"

model = dict(backbone=dict(attention=dict(kernel_size=0, position=False)))
