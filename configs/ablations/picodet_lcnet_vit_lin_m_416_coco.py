# LCNet-ViT with linear-angular attention alone ("+ Lin."), M-416: the paper has AP 34.8 (Castling-ViT, Table 7).
_base_ = "../_base_/picodet_lcnet_vit_m_416.py"

model = dict(backbone=dict(attention=dict(conv_size=None)))
