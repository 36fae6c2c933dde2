# UperNet, FLatten-Swin-S, 160k: the paper has mIoU 48.14 (FLatten, Table 1).
_base_ = "./upernet_flatten_swin_t_160k_ade20k.py"

pretrained_by = "classifier_flatten_swin_s_300e_imagenet.py"

model = dict(backbone=dict(arch="small"))
