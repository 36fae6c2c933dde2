# LCNet-ViT with linear-angular attention and DConv ("+ Lin. + DW."), M-416: the paper has AP 35.1 (Castling-ViT, Table
# 7).
_base_ = "../_base_/picodet_lcnet_vit_m_416.py"
