# LCNet-ViT with linear-angular attention and DConv ("+ Lin. + DW."), S-320: the paper has AP 26.8 (Castling-ViT, Table
# 6).
_base_ = "../_base_/picodet_lcnet_vit_s_320.py"
