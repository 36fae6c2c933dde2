# LCNet-ViT with linear-angular attention and DConv ("+ Lin. + DW."): the paper has AP 35.1 (Castling-ViT, Table 7).
_base_ = "./picodet_castling_lcnet_m_416_coco.py"

model = dict(backbone=dict(attention=dict(aux=False)))
# No auxiliary branch, nothing to castle.
custom_hooks = _base_.custom_hooks[:-1]
