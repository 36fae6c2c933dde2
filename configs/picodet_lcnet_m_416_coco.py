# PicoDet with a plain LCNet: the paper has AP 34.3 (Castling-ViT, Tables 5 and 7).
_base_ = "./picodet_castling_lcnet_m_416_coco.py"

model = dict(backbone=dict(_delete_=True, type="mmlisa.LCNet", arch="x1.5", out_indices=(1, 2, 3)))
# No auxiliary branch, nothing to castle.
custom_hooks = _base_.custom_hooks[:-1]
