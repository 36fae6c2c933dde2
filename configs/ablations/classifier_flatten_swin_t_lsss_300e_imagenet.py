# FLatten-Swin-T, focused linear attention in 1 stage: FLatten, Table 7.
_base_ = "../imagenet/classifier_flatten_swin_t_300e_imagenet.py"

model = dict(backbone=dict(attn_type="LSSS"))
