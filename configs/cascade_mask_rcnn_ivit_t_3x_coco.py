# Cascade Mask R-CNN, iViT-T, 3x: not in the paper; its recipe for Mask R-CNN with Swin's heads.
_base_ = [
    "./_base_/models/cascade_mask_rcnn.py",
    "./_base_/datasets/coco_instance_multiscale.py",
    "./_base_/schedules/swin_3x.py",
    "./_base_/runtime_mmdet.py",
]

model = dict(
    backbone=dict(type="mmlisa.iViT", arch="tiny", drop_path_rate=0.2),
    neck=dict(in_channels=[64, 128, 320, 512]),
)
_no_decay = dict(decay_mult=0.0)
optim_wrapper = dict(paramwise_cfg=dict(custom_keys={".act.": _no_decay, "res_scale": _no_decay}))
