# LCNet-ViT with linear-angular attention and DConv ("+ Lin. + DW."): the paper has AP 26.8 (Castling-ViT, Table 6).
_base_ = "./picodet_castling_lcnet_s_320_coco.py"

model = dict(backbone=dict(attention=dict(aux=False)))
# No auxiliary branch, nothing to castle.
custom_hooks = _base_.custom_hooks[:-1]
