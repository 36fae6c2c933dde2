# PicoDet with a plain LCNet: the paper has AP 25.5 (Castling-ViT, Tables 5 and 6).
_base_ = "./picodet_castling_lcnet_s_320_coco.py"

model = dict(backbone=dict(_delete_=True, type="mmlisa.LCNet", arch="x0.75", out_indices=(1, 2, 3)))
# No auxiliary branch, nothing to castle.
custom_hooks = _base_.custom_hooks[:-1]
