# Semantic FPN, FLatten-PVT-T, 80k: the paper has mIoU 37.21 (FLatten, Table 1). PVT's recipe. 129 G FLOPs, 169 G in the
# paper, which is unexplained.
_base_ = [
    "./_base_/models/semantic_fpn.py",
    "./_base_/datasets/ade20k.py",
    "./_base_/schedules/pvt_80k.py",
    "./_base_/runtime_mmseg.py",
]

# The paper starts from ImageNet weights, this classifier's or the authors': tools/train.py CONFIG --pretrained CHECKPOINT
pretrained_by = "classifier_flatten_pvt_t_300e_imagenet.py"

model = dict(
    backbone=dict(
        type="mmlisa.FLattenPVT",
        arch="tiny",
        drop_path_rate=0.1,
    ),
    neck=dict(in_channels=[64, 128, 320, 512]),
)
param_scheduler = [dict(type="PolyLR", power=0.9, begin=0, end=80000, eta_min=0.0, by_epoch=False)]
