# PicoDet with a plain LCNet, S-416: the paper has AP 29.7 (Castling-ViT, Table 5).
_base_ = "../_base_/picodet_lcnet_vit_s_416.py"

model = dict(backbone=dict(_delete_=True, type="mmlisa.LCNet", arch="x0.75", out_indices=(1, 2, 3)))
