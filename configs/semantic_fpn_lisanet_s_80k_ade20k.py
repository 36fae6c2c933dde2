# Semantic FPN, LiSANet-S, 80k: the paper has mIoU 49.2 (LiSA journal version, Table 10).
_base_ = "./semantic_fpn_hylisanet_s_80k_ade20k.py"

model = dict(backbone=dict(arch="small"))
