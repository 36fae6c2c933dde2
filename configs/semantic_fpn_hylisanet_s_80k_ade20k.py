# Semantic FPN, HyLiSANet-S, 80k: the paper has mIoU 49.3 (LiSA journal version, Table 10; appendix A.2). The kernels
# keep their taps at this resolution, so that attention reaches 7 tokens in stage 3 (docs/lisa.md).
_base_ = [
    "./_base_/models/semantic_fpn.py",
    "./_base_/datasets/ade20k.py",
    "./_base_/schedules/pvt_80k.py",
    "./_base_/runtime_mmseg.py",
]

# The paper starts from ImageNet weights: tools/train.py CONFIG --pretrained CHECKPOINT
pretrained_by = "classifier_hylisanet_s_300e_imagenet.py"

model = dict(
    backbone=dict(
        type="mmlisa.LiSANet",
        arch="hybrid-small",
        drop_path_rate=0.15,
    ),
    neck=dict(in_channels=[64, 128, 320, 384]),
)
