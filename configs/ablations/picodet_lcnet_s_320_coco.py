# PicoDet with a plain LCNet, S-320: the paper has AP 25.5 (Castling-ViT, Tables 5 and 6).
_base_ = "../_base_/picodet_lcnet_vit_s_320.py"

model = dict(backbone=dict(_delete_=True, type="mmlisa.LCNet", arch="x0.75", out_indices=(1, 2, 3)))
