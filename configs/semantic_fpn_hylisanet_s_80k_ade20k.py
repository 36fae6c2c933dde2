# Semantic FPN, HyLiSANet-S, 80k: the paper has mIoU 49.3 (LiSA journal version, Table 10; appendix A.2).
_base_ = [
    "./_base_/models/semantic_fpn.py",
    "./_base_/datasets/ade20k.py",
    "./_base_/schedules/pvt_80k.py",
    "./_base_/runtime_mmseg.py",
]

model = dict(
    backbone=dict(
        type="mmlisa.LiSANet",
        arch="hybrid-small",
        drop_path_rate=0.15,
        # An ImageNet-1K classifier of mmpretrain's layout:
        # init_cfg=dict(type="Pretrained", checkpoint="hylisanet_s_in1k.pth", prefix="backbone."),
    ),
    neck=dict(in_channels=[64, 128, 320, 384]),
)
