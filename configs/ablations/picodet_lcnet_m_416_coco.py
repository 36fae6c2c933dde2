# PicoDet with a plain LCNet, M-416: the paper has AP 34.3 (Castling-ViT, Tables 5 and 7).
_base_ = "../_base_/picodet_lcnet_vit_m_416.py"

model = dict(backbone=dict(_delete_=True, type="mmlisa.LCNet", arch="x1.5", out_indices=(1, 2, 3)))
