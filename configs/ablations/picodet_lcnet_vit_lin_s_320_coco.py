# LCNet-ViT with linear-angular attention alone ("+ Lin."), S-320: the paper has AP 26.2 (Castling-ViT, Table 6).
_base_ = "../_base_/picodet_lcnet_vit_s_320.py"

model = dict(backbone=dict(attention=dict(conv_size=None)))
