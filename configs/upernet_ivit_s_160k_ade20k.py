# UperNet, iViT-S, 160k: the paper has mIoU 51.4, multi-scale (tools/test.py --tta; iViT, Tables 7 and 10).
_base_ = "./upernet_ivit_t_160k_ade20k.py"

model = dict(backbone=dict(arch="small"))
