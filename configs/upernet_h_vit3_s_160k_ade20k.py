# UperNet, H-ViT³-S, 160k: the paper has mIoU 50.2.
_base_ = "./upernet_h_vit3_t_160k_ade20k.py"

pretrained_by = "classifier_h_vit3_s_300e_imagenet.py"

model = dict(backbone=dict(arch="small", drop_path_rate=0.4))
