# LCNet-ViT with linear-angular attention alone ("+ Lin."): the paper has AP 34.8 (Castling-ViT, Table 7).
_base_ = "./picodet_castling_lcnet_m_416_coco.py"

model = dict(backbone=dict(attention=dict(aux=False, conv_size=None)))
# No auxiliary branch, nothing to castle.
custom_hooks = _base_.custom_hooks[:-1]
