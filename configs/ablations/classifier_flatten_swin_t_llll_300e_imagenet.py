# FLatten-Swin-T, focused linear attention in 4 stages: FLatten, Table 7.
_base_ = "../imagenet/classifier_flatten_swin_t_300e_imagenet.py"

model = dict(backbone=dict(attn_type="LLLL"))
